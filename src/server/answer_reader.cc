#include "server/answer_reader.h"

#include <utility>

namespace deepinfer {

AnswerReader::AnswerReader(const ServedModel& model, const AnswerReaderOptions& options)
    : model_(model), options_(options) {
  if (!options.parser.has_value()) return;
  OutputParserOptions parser = *options.parser;
  parser.dsml = std::string(OutputParser::kDsmlMark);
  parser.end_think = std::string(OutputParser::kEndThinkMark);
  parser_.emplace(std::move(parser));
}

TokenProbabilities Probabilities(const Tokenizer& tokenizer, const PositionLogprobs& position) {
  const auto probability = [&](const TokenLogprob& token) {
    return TokenProbability{std::string(tokenizer.TokenBytes(token.id)), token.logprob};
  };
  TokenProbabilities all{probability(position.chosen), {}};
  all.top.reserve(position.top.size());
  for (const TokenLogprob& token : position.top) all.top.push_back(probability(token));
  return all;
}

void AnswerReader::FeedText(const std::string& text, AnswerPiece* piece) {
  if (!text.empty()) parser_->Feed(text, &piece->events);
}

void AnswerReader::Open(std::span<const int32_t> ids) {
  (void)Add(ids, {}, &opening_);
  completion_tokens_ = reasoning_tokens_ = 0;
}

bool AnswerReader::Add(std::span<const int32_t> ids, std::span<const PositionLogprobs> logprobs, AnswerPiece* piece) {
  if (piece != &opening_ && !opening_.events.empty()) piece->events = std::exchange(opening_, {}).events;
  for (size_t i = 0; i < ids.size(); ++i) {
    const int32_t id = ids[i];
    if (id == model_.end_of_sentence && !options_.count_end_token) continue;
    ++completion_tokens_;
    const bool is_mark = id == model_.end_think || id == model_.dsml;
    const bool reasoning = in_reasoning() && !is_mark;
    if (reasoning) ++reasoning_tokens_;
    if (i < logprobs.size() && id != model_.end_think) {
      auto& list = reasoning ? piece->reasoning_logprobs : piece->content_logprobs;
      list.push_back(Probabilities(*model_.tokenizer, logprobs[i]));
    }
    if (!parser_.has_value()) continue;
    if (is_mark) {
      FeedText(characters_.Flush(), piece);
      FeedText(std::string(id == model_.dsml ? OutputParser::kDsmlMark : OutputParser::kEndThinkMark), piece);
    } else if (!model_.tokenizer->IsSpecial(id)) {
      FeedText(characters_.Feed(model_.tokenizer->TokenBytes(id)), piece);
    }
    if (parser_->done()) return false;
  }
  return true;
}

void AnswerReader::AddText(const std::string& text, AnswerPiece* piece) {
  if (!parser_.has_value() && !text.empty()) piece->events.push_back({OutputEvent::Kind::kText, text, 0});
}

AnswerEnd AnswerReader::Finish(FinishReason reason, const std::string& stop_sequence, AnswerPiece* piece) {
  if (!parser_.has_value()) {
    if (reason == FinishReason::kLength) return {AnswerFinish::kLength, ""};
    if (reason == FinishReason::kStopSequence) return {AnswerFinish::kStopSequence, stop_sequence};
    return {AnswerFinish::kStop, ""};
  }
  if (!parser_->stopped()) FeedText(characters_.Flush(), piece);
  parser_->Finish(reason == FinishReason::kStop, &piece->events);
  if (parser_->stopped()) {
    if (options_.include_stop) {
      piece->events.push_back({OutputEvent::Kind::kText, parser_->stop_sequence(), 0});
    }
    return {AnswerFinish::kStopSequence, parser_->stop_sequence()};
  }
  if (reason == FinishReason::kLength) return {AnswerFinish::kLength, ""};
  return {parser_->calls() > 0 ? AnswerFinish::kToolCalls : AnswerFinish::kStop, ""};
}

}  // namespace deepinfer
