// Message content that several protocols share: lists of parts, texts, images.
//
// Thread-safety: pure functions and values. Ownership: results own their texts; the JSON they read must outlive the
// call.
#ifndef DEEPINFER_API_CONTENT_FIELDS_H_
#define DEEPINFER_API_CONTENT_FIELDS_H_

#include <string>
#include <string_view>

#include "api/json_reader.h"
#include "text/conversation.h"

namespace deepinfer {

/// What the model sees in place of a document.
inline constexpr std::string_view kUnsupportedDocument = "[Unsupported Document]";
inline constexpr size_t kMaxImageUrlBytes = 8192;

inline ContentPart TextPart(std::string text) { return {std::move(text), std::nullopt}; }

/// A part for an image address, checked: http(s), or base64 data of a PNG, JPEG, GIF or WebP image.
Result<ContentPart> ImagePart(std::string url, std::string detail, std::string_view path);

/// Fails for a media type that is no PNG, JPEG, GIF or WebP image.
Status CheckImageType(std::string_view media_type, std::string_view path);

/// Reads one part in the form that a protocol gives it.
using PartReader = Result<ContentPart> (*)(const ObjectReader& part);

/// Appends content that is a string or an array of parts. Images are refused unless `allow_images`.
Status ReadContent(const JsonValue& content, const std::string& path, bool allow_images, PartReader read_part,
                   Message* message);

}  // namespace deepinfer

#endif  // DEEPINFER_API_CONTENT_FIELDS_H_
