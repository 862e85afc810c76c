#include "server/generation_session.h"

#include <algorithm>

namespace deepinfer {
namespace {

void AddTo(const std::vector<CachedTokens>& more, std::vector<CachedTokens>* by_tier) {
  for (const CachedTokens& cached : more) {
    const auto same = std::ranges::find(*by_tier, cached.tier, &CachedTokens::tier);
    if (same == by_tier->end()) {
      by_tier->push_back(cached);
    } else {
      same->tokens += cached.tokens;
    }
  }
}

// A client that does not read must not make the server hold its answer as text.
constexpr int64_t kMostBytesAtOnce = int64_t{64} << 10;
constexpr size_t kTokensOfSlice = 64;

}  // namespace

GenerationSession::GenerationSession(const ServedModel& model, GenerationPlan plan, std::function<void()> on_news)
    : model_(model), plan_(std::move(plan)), on_news_(std::move(on_news)), encoder_(MakeAnswerEncoder(plan_.head)) {}

Result<std::unique_ptr<GenerationSession>> GenerationSession::Start(const ServedModel& model, GenerationPlan plan,
                                                                    std::function<void()> on_news) {
  std::unique_ptr<GenerationSession> session(new GenerationSession(model, std::move(plan), std::move(on_news)));
  const std::vector<GenerationRequest>& requests = session->plan_.requests;
  for (size_t i = 0; i < requests.size(); ++i) {
    std::vector<int64_t> indices;
    for (int k = 0; k < requests[i].sampling.n; ++k) {
      ChoiceState choice;
      choice.reader = std::make_unique<AnswerReader>(model, session->plan_.reader);
      choice.reader->Open(session->plan_.opening);
      indices.push_back(std::ssize(session->choices_));
      session->choices_.push_back(std::move(choice));
    }
    session->unfinished_ += std::ssize(indices);
    DEEPINFER_RETURN_IF_ERROR(session->Submit(requests[i], std::move(indices)));
    session->report_.usage.prompt_tokens += std::ssize(requests[i].prompt);
  }
  if (session->plan_.echo_logprobs) session->prompt_logprobs_.resize(requests.size());
  for (GenerationRequest& request : session->plan_.requests) request.prompt = {};  // nobody needs them again
  return session;
}

Status GenerationSession::Submit(GenerationRequest request, std::vector<int64_t> choices) {
  request.on_news = on_news_;
  DEEPINFER_ASSIGN_OR_RETURN(std::unique_ptr<GenerationStream> stream, model_.engine->Submit(std::move(request)));
  Source& source = sources_.emplace_back();
  source.stream = std::move(stream);
  source.choices = std::move(choices);
  return Status::Ok();
}

void GenerationSession::Begin(std::string* out) {
  if (started_) return;
  started_ = true;
  encoder_->Start(CurrentUsage(), out);
}

Usage GenerationSession::CurrentUsage() const {
  Usage usage;
  usage.prompt_tokens = report_.usage.prompt_tokens;
  for (const Source& source : sources_) {
    usage.cached_tokens += source.cached_tokens;
    AddTo(source.cached_tokens_by_tier, &usage.cached_tokens_by_tier);
  }
  for (const ChoiceState& choice : choices_) {
    usage.completion_tokens += choice.reader->completion_tokens();
    usage.reasoning_tokens += choice.reader->reasoning_tokens();
  }
  return usage;
}

bool GenerationSession::Pump(std::string* out) {
  for (size_t i = 0; i < sources_.size() && !failed_; ++i) {
    while (!sources_[i].done && !failed_) {
      if (sources_[i].unread.has_value()) {
        // The client takes this first: what waits, waits as tokens and not as text.
        if (std::ssize(*out) >= kMostBytesAtOnce) return true;
        ReadSlice(i, out);
        continue;
      }
      GenerationDelta delta;
      bool nothing_new = false;
      if (!sources_[i].stream->NextFor(&delta, 0, &nothing_new)) {
        sources_[i].done = true;
        const Generation& generation = sources_[i].stream->Wait();
        CollectReport(generation);
        if (plan_.echo_logprobs) prompt_logprobs_[i] = generation.prompt_logprobs;
        // Frees what the engine holds of it.
        sources_[i].stream.reset();
      } else if (nothing_new) {
        break;
      } else if (plan_.echo_logprobs) {
        held_.emplace_back(i, std::move(delta));
      } else {
        sources_[i].unread = std::move(delta);
        sources_[i].next = 0;
      }
    }
  }
  const bool all_read = std::ranges::all_of(sources_, &Source::done);
  if (plan_.echo_logprobs && all_read) ReplayHeld(out);
  if (failed_) return false;
  if (unfinished_ > 0) return true;
  encoder_->End(CurrentUsage(), out);
  return false;
}

void GenerationSession::ReadSlice(size_t index, std::string* out) {
  Source& source = sources_[index];
  GenerationDelta& all = *source.unread;
  const size_t count = std::min(kTokensOfSlice, all.ids.size() - source.next);
  const bool last = source.next + count == all.ids.size();
  GenerationDelta slice;
  if (last) slice = std::move(all);
  const GenerationDelta& from = last ? slice : all;
  const auto part = [&](const auto& list) {
    const size_t begin = std::min(source.next, list.size());
    const auto first = list.begin() + static_cast<std::ptrdiff_t>(begin);
    return std::vector(first, first + static_cast<std::ptrdiff_t>(std::min(count, list.size() - begin)));
  };
  std::vector<int32_t> ids = part(from.ids);
  std::vector<PositionLogprobs> logprobs = part(from.logprobs);
  if (!last) {
    slice.index = all.index;
    slice.cached_tokens = all.cached_tokens;
    slice.cached_tokens_by_tier = all.cached_tokens_by_tier;
  }
  slice.ids = std::move(ids);
  slice.logprobs = std::move(logprobs);
  source.next += count;
  if (last) source.unread.reset();
  Read(sources_[index], slice, out);
}

void GenerationSession::ReplayHeld(std::string* out) {
  for (size_t i = 0; i < plan_.requests.size(); ++i) {
    std::vector<TokenProbabilities> tokens;
    for (const PositionLogprobs& position : prompt_logprobs_[i]) {
      tokens.push_back(Probabilities(*model_.tokenizer, position));
    }
    const auto n = static_cast<size_t>(plan_.requests[i].sampling.n);
    plan_.head.echo_logprobs.insert(plan_.head.echo_logprobs.end(), n, tokens);
  }
  encoder_ = MakeAnswerEncoder(plan_.head);
  for (const auto& [source, delta] : held_) {
    if (!failed_) Read(sources_[source], delta, out);
  }
  held_.clear();
}

void GenerationSession::Read(Source& source, const GenerationDelta& delta, std::string* out) {
  const int64_t index = source.choices[static_cast<size_t>(delta.index)];
  ChoiceState& choice = choices_[static_cast<size_t>(index)];
  if (choice.finished) return;
  source.cached_tokens = delta.cached_tokens;
  source.cached_tokens_by_tier = delta.cached_tokens_by_tier;
  // An error without a single token can still be the status of the response.
  if (!delta.ids.empty() || !delta.finished || delta.finish_reason != FinishReason::kError) Begin(out);
  AnswerPiece piece;
  const bool wants_more = choice.reader->Add(delta.ids, delta.logprobs, &piece);
  choice.reader->AddText(delta.content, &piece);
  if (!wants_more) {
    if (source.stream != nullptr) source.stream->CancelChoice(delta.index);
    return FinishChoice(index, choice.reader->Finish(FinishReason::kStop, "", &piece), piece, out);
  }
  const bool failed = delta.finished &&
                      (delta.finish_reason == FinishReason::kError || delta.finish_reason == FinishReason::kCancelled);
  if (!delta.finished || failed) {
    if (!piece.events.empty() || !piece.content_logprobs.empty() || !piece.reasoning_logprobs.empty()) {
      encoder_->Add(index, piece, out);
    }
    if (failed) {
      Fail(delta.finish_reason == FinishReason::kError
               ? ErrorOfStatus(delta.status)
               : ApiError::Overloaded("the request was cancelled by the server", 1),
           out);
    }
    return;
  }
  FinishChoice(index, choice.reader->Finish(delta.finish_reason, delta.stop_sequence, &piece), piece, out);
}

void GenerationSession::FinishChoice(int64_t index, const AnswerEnd& end, const AnswerPiece& piece, std::string* out) {
  choices_[static_cast<size_t>(index)].finished = true;
  --unfinished_;
  if (index == 0) {
    constexpr std::string_view kNames[] = {"stop",       "stop_sequence",  "length",
                                           "tool_calls", "content_filter", "end_of_stream"};
    report_.finish_reason = kNames[static_cast<size_t>(end.reason)];
    report_.ended = end.reason == AnswerFinish::kLength         ? FinishReason::kLength
                    : end.reason == AnswerFinish::kStopSequence ? FinishReason::kStopSequence
                                                                : FinishReason::kStop;
  }
  encoder_->Add(index, piece, out);
  encoder_->Finish(index, end, CurrentUsage(), out);
}

void GenerationSession::CollectReport(const Generation& generation) {
  report_.replayed_tokens += generation.replayed_tokens;
  report_.preemptions += generation.preemptions;
  report_.drafts.steps += generation.drafts.steps;
  report_.drafts.drafted += generation.drafts.drafted;
  report_.drafts.verified += generation.drafts.verified;
  report_.drafts.accepted += generation.drafts.accepted;
  if (report_.queue_ms == 0) report_.queue_ms = generation.queue_ms;
}

void GenerationSession::Fail(const ApiError& error, std::string* out) {
  if (failed_) return;
  failed_ = true;
  error_ = error;
  report_.ended = FinishReason::kError;
  encoder_->Fail(error, out);
  for (Source& source : sources_) source.stream.reset();
}

int64_t GenerationSession::TakeNewTokens() {
  const int64_t now = CurrentUsage().completion_tokens;
  return now - std::exchange(told_tokens_, now);
}

GenerationReport GenerationSession::Report() const {
  GenerationReport report = report_;
  report.usage = CurrentUsage();
  report.choices = std::ssize(choices_);
  return report;
}

}  // namespace deepinfer
