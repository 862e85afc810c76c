// ResolveUri: a URI reference against a base (RFC 3986 section 5.2).
//
// Thread-safety: pure. Ownership: values. Errors: none; malformed references give useless URIs that nothing has.
#ifndef DEEPINFER_GRAMMAR_URI_REFERENCE_H_
#define DEEPINFER_GRAMMAR_URI_REFERENCE_H_

#include <string>
#include <string_view>

namespace deepinfer {

/// `base` without a fragment.
std::string ResolveUri(std::string_view base, std::string_view reference);

/// %41 -> A.
std::string DecodePercent(std::string_view text);

}  // namespace deepinfer

#endif  // DEEPINFER_GRAMMAR_URI_REFERENCE_H_
