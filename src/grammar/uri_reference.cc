#include "grammar/uri_reference.h"

#include <algorithm>
#include <charconv>

namespace deepinfer {
namespace {

/// Length of "scheme:" at the start, 0 without.
size_t SchemeLength(std::string_view uri) {
  for (size_t i = 0; i < uri.size(); ++i) {
    const char c = uri[i];
    const bool letter = (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z');
    if (c == ':' && i > 0) return i + 1;
    if (!letter && (i == 0 || !((c >= '0' && c <= '9') || c == '+' || c == '-' || c == '.'))) return 0;
  }
  return 0;
}

/// Length of "scheme://authority".
size_t AuthorityEnd(std::string_view uri) {
  const size_t scheme = SchemeLength(uri);
  if (!uri.substr(scheme).starts_with("//")) return scheme;
  const size_t end = uri.find_first_of("/?#", scheme + 2);
  return end == std::string_view::npos ? uri.size() : end;
}

std::string WithoutDots(std::string_view path) {
  std::string result;
  while (!path.empty()) {
    const size_t end = std::min(path.find('/', 1), path.size());
    const std::string_view segment = path.substr(0, end);
    const bool last = end == path.size();
    if (segment == "/..") {
      result.erase(result.rfind('/') == std::string::npos ? 0 : result.rfind('/'));
      if (last) result += '/';
    } else if (segment == "/.") {
      if (last) result += '/';
    } else {
      result += segment;
    }
    path.remove_prefix(end);
  }
  return result;
}

}  // namespace

std::string ResolveUri(std::string_view base, std::string_view reference) {
  if (SchemeLength(reference) > 0) return std::string(reference);
  if (reference.empty() || reference.starts_with('#')) return std::string(base).append(reference);
  if (reference.starts_with("//")) return std::string(base.substr(0, SchemeLength(base))).append(reference);
  const size_t authority = AuthorityEnd(base);
  std::string_view path = base.substr(authority);
  path = path.substr(0, path.find_first_of("?#"));
  const size_t end = std::min(reference.find_first_of("?#"), reference.size());
  const std::string_view rest = reference.substr(end);
  std::string merged;
  if (reference.starts_with('/')) {
    merged = reference.substr(0, end);
  } else if (reference.starts_with('?')) {
    merged = path;
  } else {
    merged = path.substr(0, path.rfind('/') == std::string_view::npos ? 0 : path.rfind('/') + 1);
    if (merged.empty() && authority > 0) merged.push_back('/');
    merged.append(reference.substr(0, end));
  }
  return std::string(base.substr(0, authority)).append(WithoutDots(merged)).append(rest);
}

std::string DecodePercent(std::string_view text) {
  std::string decoded;
  for (size_t i = 0; i < text.size(); ++i) {
    int value = 0;
    if (text[i] == '%' && i + 2 < text.size() &&
        std::from_chars(text.data() + i + 1, text.data() + i + 3, value, 16).ptr == text.data() + i + 3) {
      decoded.push_back(static_cast<char>(value));
      i += 2;
    } else {
      decoded.push_back(text[i]);
    }
  }
  return decoded;
}

}  // namespace deepinfer
