#include "server/http_message.h"

#include <boost/beast/core/string.hpp>
#include <boost/beast/http/status.hpp>

namespace deepinfer {

std::optional<std::string_view> HttpRequest::Header(std::string_view name) const {
  for (const auto& [key, value] : headers) {
    if (boost::beast::iequals(key, name)) return value;
  }
  return std::nullopt;
}

std::string_view ReasonPhrase(int status) {
  return boost::beast::http::obsolete_reason(boost::beast::http::int_to_status(static_cast<unsigned>(status)));
}

}  // namespace deepinfer
