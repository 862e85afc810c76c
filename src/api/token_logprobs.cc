#include "api/token_logprobs.h"

#include <algorithm>
#include <cmath>

#include "api/json_writer.h"
#include "text/utf8.h"

namespace deepinfer {
namespace {

// What OpenAI writes for a token that cannot come.
constexpr double kLeastLogprob = -9999.0;

void AppendLogprob(double logprob, std::string* out) {
  JsonWriter(out).Number(std::isnan(logprob) ? logprob : std::max(logprob, kLeastLogprob));
}

void AppendToken(const TokenProbability& token, std::string* out) {
  JsonWriter json(out);
  json.Raw(R"({"token":)").Text(RepairUtf8(token.bytes)).Raw(R"(,"logprob":)");
  AppendLogprob(token.logprob, out);
  json.Raw(R"(,"bytes":[)");
  for (size_t i = 0; i < token.bytes.size(); ++i) {
    json.Raw(i > 0 ? "," : "").Integer(static_cast<unsigned char>(token.bytes[i]));
  }
  json.Raw("]");
}

void AppendCommaBehind(std::string* items) {
  if (!items->empty()) items->push_back(',');
}

std::string CompletionToken(const std::string& bytes) {
  static constexpr char kHex[] = "0123456789abcdef";
  if (IsValidUtf8(bytes)) return bytes;
  std::string text = "bytes:";
  for (const char c : bytes) {
    const auto byte = static_cast<unsigned char>(c);
    text += "\\x";
    text += kHex[byte >> 4];
    text += kHex[byte & 15];
  }
  return text;
}

}  // namespace

void AppendLogprobItems(std::span<const TokenProbabilities> tokens, std::string* items) {
  for (const TokenProbabilities& token : tokens) {
    AppendCommaBehind(items);
    AppendToken(token.chosen, items);
    *items += R"(,"top_logprobs":[)";
    for (size_t i = 0; i < token.top.size(); ++i) {
      if (i > 0) items->push_back(',');
      AppendToken(token.top[i], items);
      items->push_back('}');
    }
    *items += "]}";
  }
}

void CompletionLogprobs::Add(std::span<const TokenProbabilities> tokens) {
  for (const TokenProbabilities& token : tokens) {
    for (std::string* list : {&offsets_, &logprobs_, &tokens_, &top_}) AppendCommaBehind(list);
    JsonWriter(&offsets_).Integer(offset_);
    for (const char c : token.chosen.bytes) offset_ += (static_cast<unsigned char>(c) & 0xC0) == 0x80 ? 0 : 1;
    AppendLogprob(token.chosen.logprob, &logprobs_);
    JsonWriter(&tokens_).Text(CompletionToken(token.chosen.bytes));
    if (std::isnan(token.chosen.logprob)) {
      top_ += "null";
      continue;
    }
    top_ += '{';
    bool has_chosen = false;
    const auto add_top = [this](const TokenProbability& one, bool first) {
      JsonWriter(&top_).Raw(first ? "" : ",").Text(CompletionToken(one.bytes)).Raw(":");
      AppendLogprob(one.logprob, &top_);
    };
    for (size_t i = 0; i < token.top.size(); ++i) {
      has_chosen = has_chosen || token.top[i].bytes == token.chosen.bytes;
      add_top(token.top[i], i == 0);
    }
    if (!has_chosen) add_top(token.chosen, token.top.empty());
    top_ += '}';
  }
}

void CompletionLogprobs::Take(std::string* out) {
  JsonWriter(out).Raw(R"({"text_offset":[)").Raw(offsets_).Raw(R"(],"token_logprobs":[)").Raw(logprobs_);
  JsonWriter(out).Raw(R"(],"tokens":[)").Raw(tokens_).Raw(R"(],"top_logprobs":[)").Raw(top_).Raw("]}");
  for (std::string* list : {&offsets_, &logprobs_, &tokens_, &top_}) list->clear();
}

}  // namespace deepinfer
