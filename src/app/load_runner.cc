#include "app/load_runner.h"

#include <boost/asio/as_tuple.hpp>
#include <boost/asio/co_spawn.hpp>
#include <boost/asio/detached.hpp>
#include <boost/asio/steady_timer.hpp>
#include <boost/asio/use_awaitable.hpp>
#include <memory>

#include "app/interrupt.h"
#include "app/sse_reader.h"
#include "base/clock.h"

namespace deepinfer {
namespace asio = boost::asio;

namespace {

constexpr auto kAwait = asio::as_tuple(asio::use_awaitable);
constexpr std::chrono::milliseconds kPoll{100};

class Runner {
 public:
  Runner(HttpLoadClient& client, const LoadPlan& plan)
      : client_(client), plan_(plan), poll_(client.loop()), arrival_(client.loop()), answers_(plan.arrivals.size()) {}

  LoadRun Run() {
    LoadRun run;
    run.start = start_ = NowSeconds();
    if (total() > 0) {
      asio::co_spawn(client_.loop(), Arrive(), asio::detached);
      asio::co_spawn(client_.loop(), Watch(), asio::detached);
      client_.loop().restart();
      client_.loop().run();
    }
    run.interrupted = interrupted_;
    for (const auto& answer : answers_) run.records.push_back(answer != nullptr ? answer->record() : LoadRecord());
    return run;
  }

 private:
  int64_t total() const { return std::ssize(plan_.arrivals); }

  asio::awaitable<void> Arrive() {
    while (arrived_ < total() && !interrupted_) {
      const double wait = start_ + plan_.arrivals[static_cast<size_t>(arrived_)] - NowSeconds();
      if (wait > 0) {
        arrival_.expires_after(
            std::chrono::duration_cast<std::chrono::nanoseconds>(std::chrono::duration<double>(wait)));
        co_await arrival_.async_wait(kAwait);
      }
      ++arrived_;
      SendArrived();
    }
  }

  /// Requests wait for their turn in the order of their arrival.
  void SendArrived() {
    while (!interrupted_ && sent_ < arrived_ && (plan_.max_concurrency == 0 || running_ < plan_.max_concurrency)) {
      ++running_;
      asio::co_spawn(client_.loop(), RunOne(sent_++), asio::detached);
    }
  }

  asio::awaitable<void> RunOne(int64_t index) {
    HttpLoadRequest request;
    request.path = plan_.path;
    request.body = plan_.body(index);
    auto& place = answers_[static_cast<size_t>(index)];
    place = std::make_unique<LoadAnswer>(NowSeconds());
    LoadAnswer& answer = *place;
    SseReader reader;
    const HttpLoadClient::OnBody on_body = [&](std::string_view bytes) {
      const double now = NowSeconds();
      reader.Feed(bytes, [&](std::string_view name, std::string_view data) { answer.AddEvent(name, data, now); });
    };
    const HttpLoadResponse response = co_await client_.Send(request, on_body);
    --running_;
    // What was broken off has no result.
    if (interrupted_) co_return;
    answer.Finish(response.status, response.body, response.broken, NowSeconds());
    ++done_;
    SendArrived();
    if (done_ == total()) poll_.cancel();
  }

  asio::awaitable<void> Watch() {
    while (done_ < total()) {
      if (plan_.progress) plan_.progress(done_, running_);
      if (Interrupt::flag()) {
        interrupted_ = true;
        arrival_.cancel();
        client_.CancelAll();
        co_return;
      }
      poll_.expires_after(kPoll);
      co_await poll_.async_wait(kAwait);
    }
  }

  HttpLoadClient& client_;
  const LoadPlan& plan_;
  asio::steady_timer poll_;
  asio::steady_timer arrival_;
  std::vector<std::unique_ptr<LoadAnswer>> answers_;
  double start_ = 0;
  bool interrupted_ = false;
  int64_t arrived_ = 0;
  int64_t sent_ = 0;
  int64_t running_ = 0;
  int64_t done_ = 0;
};

}  // namespace

LoadRun RunLoad(HttpLoadClient& client, const LoadPlan& plan) { return Runner(client, plan).Run(); }

}  // namespace deepinfer
