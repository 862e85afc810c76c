#include "server/generation_planner.h"

#include <algorithm>
#include <random>
#include <span>

#include "api/json_reader.h"
#include "server/output_grammar.h"
#include "text/prompt_renderer.h"

namespace deepinfer {
namespace {

// Without one the client wants another answer each time.
uint64_t RandomSeed() {
  static thread_local std::mt19937_64 generator{std::random_device{}()};
  return generator() >> 1;
}

SamplingParams SamplingOf(const RequestSettings& settings) {
  SamplingParams sampling;
  sampling.temperature = settings.temperature.value_or(1.0);
  sampling.top_p = settings.top_p.value_or(1.0);
  sampling.top_k = settings.top_k.value_or(0);
  sampling.min_p = settings.min_p.value_or(0.0);
  sampling.frequency_penalty = settings.frequency_penalty.value_or(0.0);
  sampling.presence_penalty = settings.presence_penalty.value_or(0.0);
  sampling.repetition_penalty = settings.repetition_penalty.value_or(1.0);
  sampling.seed = settings.seed.has_value() ? static_cast<uint64_t>(*settings.seed) : RandomSeed();
  sampling.logit_bias = settings.logit_bias;
  sampling.bad_words = settings.bad_words;
  sampling.n = static_cast<int>(settings.n);
  sampling.min_tokens = settings.min_tokens.value_or(0);
  sampling.stop_token_ids = settings.stop_token_ids;
  sampling.ignore_eos = settings.ignore_eos;
  sampling.logprobs = static_cast<int>(settings.logprobs.value_or(-1));
  return sampling;
}

// The limit on an answer to `prompt_tokens`, checked against the context.
Result<int64_t> LimitOf(const ServedModel& model, const RequestSettings& settings, int64_t prompt_tokens,
                        int64_t when_absent, Protocol protocol) {
  const int64_t left = model.max_model_len - prompt_tokens;
  const char* const prompt_field = protocol == Protocol::kCompletions ? "prompt"
                                   : protocol == Protocol::kResponses ? "input"
                                                                      : "messages";
  if (left < 1) {
    // Agents recognise Anthropic's first words, or OpenAI's "maximum context length is", and shorten the conversation.
    return FieldError(prompt_field, "prompt is too long: " + std::to_string(prompt_tokens) + " tokens > " +
                                        std::to_string(model.max_model_len - 1) +
                                        " maximum; the model's maximum context length is " +
                                        std::to_string(model.max_model_len) +
                                        " tokens, of which the answer needs at least one; shorten the prompt");
  }
  if (!settings.max_tokens.has_value()) return std::min(when_absent, left);
  if (*settings.max_tokens > left) {
    // In Anthropic's words, from which Claude Code works out a limit that fits and asks again.
    return FieldError(protocol == Protocol::kResponses ? "max_output_tokens" : "max_tokens",
                      "input length and `max_tokens` exceed context limit: " + std::to_string(prompt_tokens) + " + " +
                          std::to_string(*settings.max_tokens) + " > " + std::to_string(model.max_model_len) +
                          "; ask for at most " + std::to_string(left));
  }
  return *settings.max_tokens;
}

Status CheckModelName(const ServedModel& model, const std::string& name) {
  if (!model.strict_names || std::find(model.names.begin(), model.names.end(), name) != model.names.end()) {
    return Status::Ok();
  }
  return Status::NotFound("model: " + Quoted(name) + " is not served here; use " + Quoted(model.names.front()));
}

void FillHead(const ServedModel& model, const RequestSettings& settings, int64_t prompts, AnswerHead* head) {
  head->model = settings.model.empty() ? model.names.front() : settings.model;
  head->system_fingerprint = model.system_fingerprint;
  head->stream = settings.stream;
  head->include_usage = settings.include_usage;
  head->choices = prompts * settings.n;
  head->logprobs = settings.logprobs.has_value();
}

GenerationRequest RequestOf(const RequestSettings& settings, std::vector<int32_t> prompt, int64_t max_tokens) {
  GenerationRequest request;
  request.prompt = std::move(prompt);
  request.sampling = SamplingOf(settings);
  request.sampling.max_tokens = max_tokens;
  request.sampling.min_tokens = std::min(request.sampling.min_tokens, max_tokens);
  request.cache_salt = settings.cache_salt;
  request.cache_ttl_seconds = settings.cache_ttl_seconds;
  request.no_store = settings.no_store;
  request.priority = static_cast<int>(settings.priority);
  request.replay = settings.replay;
  return request;
}

Status CheckNoImages(const Prompt& prompt) {
  if (prompt.images.empty()) return Status::Ok();
  return Status::Unsupported("messages: this build takes no images; send text only");
}

// The tool that a required call must name; empty: none is required, or there are several.
std::string ForcedToolName(const Conversation& conversation) {
  if (conversation.tool_choice != ToolChoice::kRequired) return "";
  if (!conversation.named_tool.empty()) return conversation.named_tool;
  return conversation.tools.size() == 1 ? conversation.tools.front().name : "";
}

// The same conversation with the tool in question alone, and nothing forced.
Conversation WithFreeChoice(const Conversation& conversation) {
  Conversation free = conversation;
  const std::string name = ForcedToolName(conversation);
  std::erase_if(free.tools, [&](const Tool& tool) { return tool.name != name; });
  free.tool_choice = ToolChoice::kAuto;
  free.named_tool.clear();
  return free;
}

}  // namespace

Result<std::vector<int32_t>> PromptOf(const ServedModel& model, const Conversation& conversation) {
  DEEPINFER_ASSIGN_OR_RETURN(const Prompt prompt, RenderPrompt(conversation));
  DEEPINFER_RETURN_IF_ERROR(CheckNoImages(prompt));
  return PromptIds(prompt, *model.tokenizer);
}

Result<GenerationPlan> PlanConversation(const ServedModel& model, const ConversationRequest& request, AnswerHead head) {
  const Conversation& conversation = request.conversation;
  const RequestSettings& settings = request.settings;
  DEEPINFER_RETURN_IF_ERROR(CheckModelName(model, settings.model));
  // A call that must be made begins with a name that is known, when only one tool is in question.
  const std::string forced_name = ForcedToolName(conversation);
  std::vector<int32_t> opening;
  DEEPINFER_ASSIGN_OR_RETURN(Prompt prompt, RenderPrompt(conversation));
  const bool opens_calls = prompt.start == OutputStart::kCalls;
  if (opens_calls && !forced_name.empty()) {
    DEEPINFER_ASSIGN_OR_RETURN(prompt, RenderPrompt(WithFreeChoice(conversation)));
  }
  if (opens_calls) {
    DEEPINFER_ASSIGN_OR_RETURN(opening, PromptIds(ForcedCallSegments(forced_name), *model.tokenizer));
  }
  int64_t constrained_tokens = std::ssize(opening);
  DEEPINFER_RETURN_IF_ERROR(CheckNoImages(prompt));
  DEEPINFER_ASSIGN_OR_RETURN(std::vector<int32_t> ids, PromptIds(prompt, *model.tokenizer));
  if (opens_calls && forced_name.empty()) {
    // The rendered prompt ends with the opening, and the parser starts behind it.
    if (!std::ranges::equal(std::span(ids).last(std::min(ids.size(), opening.size())), opening)) {
      return FieldError("tool_choice", "a required call cannot continue the text of an assistant's prefix");
    }
    opening.clear();
  }
  ids.insert(ids.end(), opening.begin(), opening.end());
  if (prompt.start == OutputStart::kContent) {
    // The text that the client has begun belongs to the format.
    constrained_tokens = std::find(ids.rbegin(), ids.rend(), model.end_think) - ids.rbegin();
  }
  DEEPINFER_ASSIGN_OR_RETURN(
      const int64_t max_tokens,
      LimitOf(model, settings, std::ssize(ids), conversation.thinking ? kDefaultMaxTokensThinking : kDefaultMaxTokens,
              head.protocol));

  GenerationPlan plan;
  plan.head = std::move(head);
  FillHead(model, settings, 1, &plan.head);
  plan.head.thinking = conversation.thinking;
  plan.head.tools = conversation.tools;
  plan.opening = std::move(opening);
  plan.requests.push_back(RequestOf(settings, std::move(ids), max_tokens));
  DEEPINFER_RETURN_IF_ERROR(
      ConstrainAnswer(model, request, plan.head.protocol, prompt, constrained_tokens, &plan.requests.front()));

  OutputParserOptions parser;
  parser.start = prompt.start;
  parser.parse_tool_calls = prompt.parse_tool_calls;
  parser.json_object = conversation.response_format == ResponseFormat::kJsonObject;
  parser.stop = settings.stop;
  parser.max_calls = settings.max_tool_calls.value_or(0);
  if (prompt.parse_tool_calls) {
    for (const Tool& tool : conversation.tools) {
      if (conversation.named_tool.empty() || tool.name == conversation.named_tool) {
        parser.tool_names.push_back(tool.name);
      }
    }
  }
  plan.reader.include_stop = settings.include_stop_str_in_output;
  plan.reader.count_end_token = settings.ignore_eos;

  plan.reader.parser = std::move(parser);
  return plan;
}

Result<GenerationPlan> PlanCompletions(const ServedModel& model, const CompletionsRequest& request, AnswerHead head) {
  const RequestSettings& settings = request.settings;
  DEEPINFER_RETURN_IF_ERROR(CheckModelName(model, settings.model));
  GenerationPlan plan;
  plan.head = std::move(head);
  FillHead(model, settings, std::ssize(request.prompts), &plan.head);
  plan.reader.count_end_token = settings.ignore_eos;
  for (const CompletionPrompt& prompt : request.prompts) {
    std::vector<int32_t> ids;
    if (const auto* given = std::get_if<std::vector<int32_t>>(&prompt)) {
      ids = *given;
    } else {
      const std::string& text = std::get<std::string>(prompt);
      DEEPINFER_ASSIGN_OR_RETURN(ids, PromptIds(RenderCompletion(text, request.suffix), *model.tokenizer));
    }
    DEEPINFER_ASSIGN_OR_RETURN(const int64_t max_tokens, LimitOf(model, settings, std::ssize(ids),
                                                                 kDefaultMaxTokensCompletions, Protocol::kCompletions));
    GenerationRequest one = RequestOf(settings, std::move(ids), max_tokens);
    DEEPINFER_RETURN_IF_ERROR(ConstrainText(model, settings, &one));
    one.sampling.stops = settings.stop;
    one.sampling.include_stop_str_in_output = settings.include_stop_str_in_output;
    if (settings.echo) {
      for (int64_t i = 0; i < settings.n; ++i) {
        plan.head.echo.push_back(std::holds_alternative<std::string>(prompt)
                                     ? std::get<std::string>(prompt)
                                     : model.tokenizer->Decode(one.prompt, true));
      }
      if (settings.logprobs.has_value()) {
        one.sampling.prompt_logprobs = static_cast<int>(*settings.logprobs);
        plan.echo_logprobs = true;
      }
    }
    plan.requests.push_back(std::move(one));
  }
  return plan;
}

}  // namespace deepinfer
