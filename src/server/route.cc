#include "server/route.h"

namespace deepinfer {
namespace {

struct Entry {
  std::string_view path;  // without a leading /v1
  Endpoint endpoint;
  Protocol protocol;
  std::string_view allowed;
  bool open = false;
};

constexpr Entry kEntries[] = {
    {"/chat/completions", Endpoint::kChat, Protocol::kChat, "POST"},
    {"/completions", Endpoint::kCompletions, Protocol::kCompletions, "POST"},
    {"/beta/completions", Endpoint::kCompletions, Protocol::kCompletions, "POST"},
    {"/beta/chat/completions", Endpoint::kChat, Protocol::kChat, "POST"},
    {"/responses", Endpoint::kResponses, Protocol::kResponses, "POST"},
    {"/messages", Endpoint::kMessages, Protocol::kMessages, "POST"},
    {"/messages/count_tokens", Endpoint::kCountTokens, Protocol::kMessages, "POST"},
    {"/models", Endpoint::kModels, Protocol::kChat, "GET, HEAD"},
    {"/tokenize", Endpoint::kTokenize, Protocol::kChat, "POST"},
    {"/detokenize", Endpoint::kDetokenize, Protocol::kChat, "POST"},
    {"/health", Endpoint::kHealth, Protocol::kChat, "GET, HEAD", true},
    {"/livez", Endpoint::kHealth, Protocol::kChat, "GET, HEAD", true},
    {"/ready", Endpoint::kReady, Protocol::kChat, "GET, HEAD", true},
    {"/readyz", Endpoint::kReady, Protocol::kChat, "GET, HEAD", true},
    {"/metrics", Endpoint::kMetrics, Protocol::kChat, "GET, HEAD"},
    {"/load", Endpoint::kLoad, Protocol::kChat, "GET, HEAD"},
    {"/version", Endpoint::kVersion, Protocol::kChat, "GET, HEAD"},
    {"/", Endpoint::kPage, Protocol::kChat, "GET, HEAD", true},
};

}  // namespace

Route FindRoute(std::string_view path) {
  if (path.size() > 1 && path.ends_with('/')) path.remove_suffix(1);
  // The hosted service has Messages under /anthropic.
  if (path.starts_with("/anthropic/")) path.remove_prefix(std::string_view("/anthropic").size());
  if (path.starts_with("/v1/")) path.remove_prefix(std::string_view("/v1").size());
  for (const Entry& entry : kEntries) {
    if (path == entry.path) return {entry.endpoint, entry.protocol, entry.allowed, entry.path, "", entry.open};
  }
  constexpr std::string_view kResponsePrefix = "/responses/";
  if (path.starts_with(kResponsePrefix)) {
    std::string_view id = path.substr(kResponsePrefix.size());
    constexpr std::string_view kItems = "/input_items";
    if (id.ends_with(kItems)) {
      id.remove_suffix(kItems.size());
      return {Endpoint::kResponseItems, Protocol::kResponses, "GET", "/responses/{id}/input_items", std::string(id)};
    }
    if (!id.empty() && id.find('/') == std::string_view::npos) {
      return {Endpoint::kResponse, Protocol::kResponses, "GET, DELETE", "/responses/{id}", std::string(id)};
    }
  }
  constexpr std::string_view kModelPrefix = "/models/";
  if (path.starts_with(kModelPrefix)) {
    return {Endpoint::kModel, Protocol::kChat, "GET", "/models/{id}", std::string(path.substr(kModelPrefix.size()))};
  }
  Route none;
  none.name = "other";
  return none;
}

bool MethodAllowed(const Route& route, std::string_view method) {
  for (std::string_view rest = route.allowed; !rest.empty();) {
    const size_t comma = rest.find(", ");
    if (rest.substr(0, comma) == method) return true;
    rest = comma == std::string_view::npos ? "" : rest.substr(comma + 2);
  }
  return false;
}

}  // namespace deepinfer
