// The parts of bench serve that need no server: event streams, arrivals, texts, files, counters, and the arithmetic of
// the result on made-up times.
#include <gtest/gtest.h>

#include <cmath>
#include <limits>
#include <nlohmann/json.hpp>
#include <set>
#include <sstream>

#include "app/http_load_client.h"
#include "app/load_answer.h"
#include "app/load_arrivals.h"
#include "app/load_dataset.h"
#include "app/load_report.h"
#include "app/server_counters.h"
#include "app/sse_reader.h"

namespace deepinfer {
namespace {

using Json = nlohmann::json;
using Outcome = LoadRecord::Outcome;

constexpr double kInfinity = std::numeric_limits<double>::infinity();

TEST(SseReader, EventsAreTheSameHoweverTheBytesArrive) {
  const std::string stream =
      "data: one\n\n: a comment\n\nevent: error\r\ndata:two\r\ndata:  lines\r\n\r\nid: 3\nretry\n\ndata:\n\ndata: cut "
      "off";
  const std::vector<std::string> expected = {"|one", "error|two\n lines", "|"};
  for (size_t piece = 1; piece <= stream.size(); ++piece) {
    SseReader reader;
    std::vector<std::string> events;
    for (size_t at = 0; at < stream.size(); at += piece) {
      reader.Feed(std::string_view(stream).substr(at, piece), [&](std::string_view name, std::string_view data) {
        events.push_back(std::string(name) + "|" + std::string(data));
      });
    }
    EXPECT_EQ(events, expected) << piece;
  }
}

TEST(ServerUrl, Parts) {
  const auto parse = [](const std::string& text) {
    const Result<ServerUrl> url = ServerUrl::Parse(text);
    if (!url.ok()) return std::string("error");
    return url->unix_socket + (url->tls ? "tls " : "") + url->host + " " + url->port + " " + url->path + " " +
           url->authority();
  };
  EXPECT_EQ(parse("http://127.0.0.1:8000"), "127.0.0.1 8000  127.0.0.1:8000");
  EXPECT_EQ(parse("https://api.example.com/base/"), "tls api.example.com 443 /base api.example.com");
  EXPECT_EQ(parse("http://[::1]:80/v1"), "::1 80 /v1 [::1]");
  EXPECT_EQ(parse("unix:/tmp/socket"), "/tmp/socket   localhost");
  for (const char* wrong : {"", "127.0.0.1:8000", "ftp://host", "http://", "http://host:port", "http://a b",
                            "unix:", "http://host:80\r\nX: y", "http://host:123456"}) {
    EXPECT_EQ(parse(wrong), "error") << wrong;
  }
}

TEST(ArrivalTimes, AreAFunctionOfTheSeed) {
  const std::vector<double> times = ArrivalTimes(1000, 10, 1, 3);
  EXPECT_EQ(times, ArrivalTimes(1000, 10, 1, 3));
  EXPECT_NE(times, ArrivalTimes(1000, 10, 1, 4));
  EXPECT_EQ(times.front(), 0);
  EXPECT_DOUBLE_EQ(times.back(), 99.9);  // 999 intervals of a tenth
  EXPECT_TRUE(std::ranges::is_sorted(times));
  // Pinned, so that it is the same with every library and machine.
  EXPECT_NEAR(ArrivalTimes(3, 1, 1, 0)[1], 0.87464042479368775, 1e-12);
}

TEST(ArrivalTimes, BurstinessIsTheShapeOfTheIntervals) {
  // The squared coefficient of variation of a gamma distribution is 1 / shape.
  for (const double shape : {0.25, 1.0, 4.0}) {
    const std::vector<double> times = ArrivalTimes(20'000, 1, shape, 1);
    double squares = 0;
    for (size_t i = 1; i < times.size(); ++i) squares += std::pow(times[i] - times[i - 1] - 1, 2);
    const double variation = squares / static_cast<double>(times.size() - 1);
    EXPECT_NEAR(variation * shape, 1, 0.1) << shape;
  }
}

TEST(ArrivalTimes, AllAtOnceAtAnInfiniteRate) {
  EXPECT_EQ(ArrivalTimes(4, kInfinity, 1, 0), std::vector<double>(4, 0.0));
  EXPECT_EQ(ArrivalTimes(1, 5, 1, 0), std::vector<double>(1, 0.0));
  EXPECT_TRUE(ArrivalTimes(0, 5, 1, 0).empty());
}

int64_t WordsIn(const std::string& text) {
  std::istringstream stream(text);
  int64_t count = 0;
  for (std::string word; stream >> word;) ++count;
  return count;
}

TEST(RandomText, HasTheTokensThatWereAskedFor) {
  RandomText text;
  for (const int64_t tokens : {1, 2, 100}) EXPECT_EQ(WordsIn(text.Make(0, 0, tokens)), tokens);
  EXPECT_EQ(text.Make(1, 2, 50), text.Make(1, 2, 50));
  EXPECT_NE(text.Make(1, 2, 50), text.Make(1, 3, 50));
  EXPECT_NE(text.Make(1, 2, 50), text.Make(2, 2, 50));

  std::vector<int64_t> counts(RandomText::Words().size(), 3);
  counts[5] = 2;
  text.SetTokenCounts(counts);
  // 3 a word while they fit, then the one of 2.
  EXPECT_EQ(WordsIn(text.Make(0, 0, 3)), 1);
  EXPECT_EQ(text.Make(0, 0, 2), RandomText::Words()[5]);
  EXPECT_EQ(text.Make(0, 0, 1), RandomText::Words()[5]);  // never empty
}

TEST(LoadDataset, LengthsStayWithinTheRatio) {
  const LoadDataset dataset({.input_tokens = 100, .output_tokens = 10, .range_ratio = 0.5, .seed = 1});
  std::set<int64_t> inputs, outputs;
  for (int64_t i = 0; i < 500; ++i) {
    const LoadPrompt prompt = dataset.Make(i);
    EXPECT_EQ(WordsIn(prompt.text), prompt.input_tokens);
    inputs.insert(prompt.input_tokens);
    outputs.insert(prompt.output_tokens);
  }
  EXPECT_GE(*inputs.begin(), 50);
  EXPECT_LE(*inputs.rbegin(), 150);
  EXPECT_GT(inputs.size(), 80u);
  EXPECT_EQ(*outputs.begin(), 5);
  EXPECT_EQ(*outputs.rbegin(), 15);
}

TEST(LoadDataset, PrefixesAreSharedInTurn) {
  const LoadDataset dataset(
      {.kind = LoadKind::kSharedPrefix, .input_tokens = 8, .output_tokens = 4, .prefix_tokens = 30, .prefixes = 3});
  const auto prefix = [&](int64_t i) { return dataset.Make(i).text.substr(0, 60); };
  EXPECT_EQ(prefix(0), prefix(3));
  EXPECT_NE(prefix(0), prefix(1));
  EXPECT_NE(prefix(1), prefix(2));
  EXPECT_NE(dataset.Make(0).text, dataset.Make(3).text);
  EXPECT_EQ(dataset.Make(0).input_tokens, 38);
  EXPECT_EQ(WordsIn(dataset.Make(0).text), 38);
}

TEST(LoadFile, TakesPromptsMessagesAndShareGpt) {
  const std::string lines =
      "{\"prompt\": \"one\"}\r\n"
      "\n"
      "{\"messages\": [{\"role\": \"user\", \"content\": \"two\"}], \"output_tokens\": 7}\n"
      "{\"id\": \"x\", \"conversations\": [{\"from\": \"system\", \"value\": \"s\"}, {\"from\": \"human\", \"value\": "
      "\"three\"}, {\"from\": \"gpt\", \"value\": \"answer\"}, {\"from\": \"human\", \"value\": \"more\"}]}\n"
      "{\"conversations\": [{\"from\": \"gpt\", \"value\": \"nobody asked\"}]}";
  const Result<std::vector<LoadPrompt>> prompts = ParseLoadFile("f", lines);
  ASSERT_TRUE(prompts.ok()) << prompts.status().message();
  ASSERT_EQ(prompts->size(), 3u);
  EXPECT_EQ((*prompts)[0].text, "one");
  EXPECT_TRUE((*prompts)[0].messages.is_null());
  EXPECT_EQ((*prompts)[1].output_tokens, 7);
  EXPECT_EQ((*prompts)[2].messages.dump(), R"([{"role":"system","content":"s"},{"role":"user","content":"three"}])");

  const LoadDataset dataset({.kind = LoadKind::kFile, .output_tokens = 64}, *prompts);
  EXPECT_EQ(dataset.Make(1).output_tokens, 7);
  EXPECT_EQ(dataset.Make(3).text, "one");
  EXPECT_EQ(dataset.Make(3).output_tokens, 64);

  const Result<std::vector<LoadPrompt>> array = ParseLoadFile("f", R"( [{"prompt": "a"}, {"prompt": "b"}])");
  ASSERT_TRUE(array.ok());
  EXPECT_EQ(array->size(), 2u);
}

TEST(LoadFile, ErrorsNameTheLine) {
  const std::pair<std::string, std::string> cases[] = {
      {"", "f: expected prompts"},
      {"{\"prompt\": \"a\"}\nnonsense", "f:2: expected an object"},
      {"{\"prompt\": 3}", "f:1: expected an object"},
      {"[{\"prompt\": \"a\"}, 3]", "f: [1]: expected an object"},
      {"[{\"prompt\"", "f: expected a JSON array"},
      {"{\"prompt\": \"a\", \"max_tokens\": 0}", "f:1: max_tokens: expected a count"},
      {"{\"conversations\": []}", "f: expected prompts"},
  };
  for (const auto& [text, message] : cases) {
    const Result<std::vector<LoadPrompt>> prompts = ParseLoadFile("f", text);
    ASSERT_FALSE(prompts.ok()) << text;
    EXPECT_TRUE(prompts.status().message().starts_with(message)) << prompts.status().message();
  }
}

std::string ChatChunk(const std::string& delta, const std::string& rest = "") {
  return R"({"choices":[{"index":0,"delta":)" + delta + "}]" + rest + "}";
}

TEST(LoadAnswer, CountsThePiecesOfAChat) {
  LoadAnswer answer(10);
  answer.AddEvent("", ChatChunk(R"({"role":"assistant","content":""})"), 10.5);  // no text yet
  answer.AddEvent("", ChatChunk(R"({"reasoning_content":"a"})"), 11);
  answer.AddEvent("", ChatChunk(R"({"content":"b"})"), 11.5);
  answer.AddEvent("", ChatChunk(R"({"tool_calls":[{"index":0}]})"), 13);
  answer.AddEvent("",
                  R"({"choices":[{"delta":{},"finish_reason":"stop"}],"usage":{"prompt_tokens":20,)"
                  R"("completion_tokens":9,"prompt_tokens_details":{"cached_tokens":16}}})",
                  13.5);
  answer.AddEvent("", "[DONE]", 13.75);
  answer.Finish(200, "", "", 14);
  const LoadRecord& record = answer.record();
  EXPECT_EQ(record.outcome, Outcome::kDone);
  EXPECT_EQ(record.pieces, 3);
  EXPECT_EQ(record.first_piece, 11);
  EXPECT_EQ(record.last_piece, 13);
  EXPECT_EQ(record.gaps, (std::vector<double>{0.5, 1.5}));
  EXPECT_EQ(record.prompt_tokens, 20);
  EXPECT_EQ(record.cached_tokens, 16);
  EXPECT_EQ(record.output_tokens, 9);
  EXPECT_EQ(record.finish_reason, "stop");
}

TEST(LoadAnswer, PiecesStandInForTokensThatNobodyCounted) {
  LoadAnswer answer(0);
  answer.AddEvent("", R"({"choices":[{"text":"a"}]})", 1);
  answer.AddEvent("", R"({"choices":[{"text":"b"}],"usage":null})", 2);
  answer.AddEvent("", "[DONE]", 2);
  answer.Finish(200, "", "", 2);
  EXPECT_EQ(answer.record().outcome, Outcome::kDone);
  EXPECT_FALSE(answer.record().has_usage);
  EXPECT_EQ(answer.record().output_tokens, 2);
}

TEST(LoadAnswer, SaysWhyItFailed) {
  const auto error = [](int status, const std::string& body, const std::string& broken,
                        const std::vector<std::string>& events) {
    LoadAnswer answer(0);
    for (const std::string& data : events) answer.AddEvent("", data, 1);
    answer.Finish(status, body, broken, 2);
    EXPECT_EQ(answer.record().outcome, Outcome::kFailed);
    return answer.record().error;
  };
  EXPECT_EQ(error(0, "", "cannot connect: refused", {}), "cannot connect: refused");
  EXPECT_EQ(error(503, R"({"error":{"message":"too many"}})", "", {}), "HTTP 503: too many");
  EXPECT_EQ(error(404, R"({"detail":"Not Found"})", "", {}), "HTTP 404: Not Found");
  EXPECT_EQ(error(500, "plain\nwords\x1b[2J", "", {}), "HTTP 500: plain words[2J");
  EXPECT_EQ(error(502, "", "", {}), "HTTP 502");
  EXPECT_EQ(error(200, "", "", {ChatChunk(R"({"content":"a"})")}), "the stream ended before the answer did");
  EXPECT_EQ(error(200, "", "the connection broke: reset", {ChatChunk(R"({"content":"a"})")}),
            "the connection broke: reset");
  EXPECT_EQ(error(200, "", "", {R"({"error":{"message":"out of memory"}})", "[DONE]"}), "error event: out of memory");
  EXPECT_EQ(error(200, "", "", {"nonsense", "[DONE]"}), "an event is no JSON object: nonsense");
}

// Ended answers of `tokens` tokens in `pieces` pieces at even distances.
LoadRecord Ended(double sent, double first, double gap, int64_t pieces, int64_t tokens) {
  LoadRecord record;
  record.outcome = Outcome::kDone;
  record.sent = sent;
  record.first_piece = first;
  record.gaps.assign(static_cast<size_t>(pieces - 1), gap);
  record.last_piece = record.ended = first + gap * static_cast<double>(pieces - 1);
  record.pieces = pieces;
  record.has_usage = true;
  record.prompt_tokens = 100;
  record.cached_tokens = 25;
  record.output_tokens = tokens;
  return record;
}

std::vector<LoadRecord> SomeRecords() {
  std::vector<LoadRecord> records = {Ended(100, 101, 0.5, 3, 5), Ended(100, 103, 0.25, 5, 5)};
  LoadRecord failed;
  failed.outcome = Outcome::kFailed;
  failed.error = "HTTP 503: busy";
  failed.sent = 101;
  failed.ended = 101.5;
  records.push_back(failed);
  LoadRecord running;
  running.outcome = Outcome::kRunning;
  running.sent = 104;
  records.push_back(running);
  records.emplace_back();
  return records;
}

TEST(LoadFigures, AreTheSumsAndSpreadsOfTheRecords) {
  const std::vector<double> percentiles = {50, 100};
  const LoadFigures figures = FiguresOf(SomeRecords(), 100, percentiles);
  EXPECT_EQ(figures.successful, 2);
  EXPECT_EQ(figures.failed, 1);
  EXPECT_EQ(figures.unfinished, 2);
  EXPECT_EQ(figures.errors, (std::map<std::string, int64_t>{{"HTTP 503: busy", 1}}));
  EXPECT_DOUBLE_EQ(figures.seconds, 4);
  EXPECT_EQ(figures.input_tokens, 200);
  EXPECT_EQ(figures.cached_tokens, 50);
  EXPECT_EQ(figures.output_tokens, 10);
  EXPECT_EQ(figures.peak_concurrency, 3);
  EXPECT_DOUBLE_EQ(figures.ttft_ms.mean, 2000);
  EXPECT_DOUBLE_EQ(figures.ttft_ms.median, 2000);
  EXPECT_DOUBLE_EQ(figures.ttft_ms.deviation, 1000);
  EXPECT_EQ(figures.ttft_ms.percentiles, (std::vector<double>{2000, 3000}));
  EXPECT_DOUBLE_EQ(figures.tpot_ms.mean, 250);  // 1 s over the four tokens behind the first, twice
  EXPECT_DOUBLE_EQ(figures.itl_ms.mean, 1000.0 / 3);
  EXPECT_DOUBLE_EQ(figures.itl_ms.median, 250);
  EXPECT_DOUBLE_EQ(figures.e2el_ms.mean, 3000);
  // Seconds 1 and 3 hold most: 2 pieces of 5/3 tokens; 4 pieces of one token.
  EXPECT_DOUBLE_EQ(figures.peak_output_tokens_per_second, 4);
}

TEST(LoadFigures, NothingGivesZeros) {
  const std::vector<double> percentiles = {99};
  const LoadFigures figures = FiguresOf({}, 5, percentiles);
  EXPECT_EQ(figures.seconds, 0);
  EXPECT_EQ(figures.per_second(0), 0);
  EXPECT_EQ(figures.ttft_ms.percentiles, std::vector<double>{0});
  EXPECT_EQ(figures.peak_concurrency, 0);
}

constexpr char kPage[] = R"(# TYPE x counter
PREFIXspec_decode_num_drafts_total{model_name="a"} 10
PREFIXspec_decode_num_drafts_total{model_name="b"} 1e1
PREFIXspec_decode_num_draft_tokens_total{model_name="a"} 40
PREFIXspec_decode_num_accepted_tokens_total{model_name="a"} 15
PREFIXspec_decode_num_accepted_tokens_per_pos_total{model_name="a",position="0"} 10
PREFIXspec_decode_num_accepted_tokens_per_pos_total{model_name="a",position="1"} 5
PREFIXprefix_cache_queries_total{model_name="a"} 200.0
PREFIXprefix_cache_hits_total{model_name="a"} 50
)";

std::string Page(const std::string& prefix) {
  std::string page = kPage;
  for (size_t at = page.find("PREFIX"); at != std::string::npos; at = page.find("PREFIX")) page.replace(at, 6, prefix);
  return page;
}

TEST(ServerCounters, ReadOurNamesAndVllms) {
  const std::string ours = Page("deepinfer_");
  for (const std::string& page : {ours, Page("vllm:"), ours + Page("vllm:")}) {
    const ServerCounters counters = ServerCounters::Parse(page);
    ASSERT_TRUE(counters.drafts.has_value());
    EXPECT_EQ(counters.drafts->steps, 20);
    EXPECT_EQ(counters.drafts->verified, 40);
    EXPECT_EQ(counters.drafts->accepted, 15);
    EXPECT_EQ(counters.drafts->accepted_by_position, (std::vector<int64_t>{10, 5}));
    ASSERT_TRUE(counters.prefix_cache.has_value());
    EXPECT_EQ(counters.prefix_cache->queried_tokens, 200);
    EXPECT_EQ(counters.prefix_cache->hit_tokens, 50);
    const ServerCounters grown = counters.Since(counters);
    EXPECT_EQ(grown.drafts->accepted, 0);
    EXPECT_EQ(grown.drafts->accepted_by_position, (std::vector<int64_t>{0, 0}));
    EXPECT_EQ(grown.prefix_cache->queried_tokens, 0);
    EXPECT_FALSE(counters.Since(ServerCounters()).drafts.has_value());
  }
  for (const char* page : {"", "not found", "deepinfer_spec_decode_num_drafts_total{", "other_total 3\n"}) {
    const ServerCounters counters = ServerCounters::Parse(page);
    EXPECT_FALSE(counters.drafts.has_value()) << page;
    EXPECT_FALSE(counters.prefix_cache.has_value()) << page;
  }
}

TEST(LoadReport, TheBlockHasTheNamesThatPeopleKnow) {
  LoadSetting setting;
  setting.request_rate = 2.5;
  setting.max_concurrency = 8;
  setting.percentiles = {90, 99.9};
  const LoadFigures figures = FiguresOf(SomeRecords(), 100, setting.percentiles);
  const std::string text = LoadText(setting, figures, ServerCounters::Parse(Page("vllm:")));
  for (const char* line : {
           "============ Serving Benchmark Result ============\n",
           "Successful requests:                     2         \n",
           "Failed requests:                         1         \n",
           "Maximum request concurrency:             8         \n",
           "Request rate configured (RPS):           2.50      \n",
           "Benchmark duration (s):                  4.00      \n",
           "Total input tokens:                      200       \n",
           "Total generated tokens:                  10        \n",
           "Request throughput (req/s):              0.50      \n",
           "Output token throughput (tok/s):         2.50      \n",
           "Peak output token throughput (tok/s):    4.00      \n",
           "Peak concurrent requests:                3.00      \n",
           "Total token throughput (tok/s):          52.50     \n",
           "---------------Time to First Token----------------\n",
           "Mean TTFT (ms):                          2000.00   \n",
           "P90 TTFT (ms):                           2800.00   \n",
           "P99.9 TTFT (ms):                         2998.00   \n",
           "-----Time per Output Token (excl. 1st token)------\n",
           "Median TPOT (ms):                        250.00    \n",
           "---------------Inter-token Latency----------------\n",
           "Mean ITL (ms):                           333.33    \n",
           "----------------End-to-end Latency----------------\n",
           "Mean E2EL (ms):                          3000.00   \n",
           "---------------Speculative Decoding---------------\n",
           "Acceptance rate (%):                     37.50     \n",
           "Acceptance length:                       1.75      \n",
           "  Position 1:                            25.00     \n",
           "Cached share of input tokens (%):        25.00     \n",
           "Hit share by the server's metrics (%):   25.00     \n",
           "1 x HTTP 503: busy\n",
           "\n==================================================\n",
       }) {
    EXPECT_NE(text.find(line), std::string::npos) << line << "\n" << text;
  }
}

TEST(LoadReport, TheJsonHasVllmsKeys) {
  LoadSetting setting;
  const LoadFigures figures = FiguresOf(SomeRecords(), 100, setting.percentiles);
  nlohmann::ordered_json json = LoadJson(setting, figures, ServerCounters());
  AddDetails(SomeRecords(), &json);
  EXPECT_EQ(json["completed"], 2);
  EXPECT_EQ(json["failed"], 1);
  EXPECT_EQ(json["request_rate"], "inf");
  EXPECT_TRUE(json["max_concurrency"].is_null());
  EXPECT_EQ(json["mean_ttft_ms"], 2000);
  EXPECT_EQ(json["p99_e2el_ms"], 3980);
  EXPECT_EQ(json["errors"]["HTTP 503: busy"], 1);
  EXPECT_EQ(json["input_lens"].dump(), "[100,100]");
  EXPECT_EQ(json["output_lens"].dump(), "[5,5]");
  EXPECT_EQ(json["ttfts"].dump(), "[1.0,3.0]");
  EXPECT_EQ(json["itls"][0].dump(), "[0.5,0.5]");
  EXPECT_FALSE(json.contains("spec_decode_acceptance_rate"));
}

}  // namespace
}  // namespace deepinfer
