#include "api/content_fields.h"

namespace deepinfer {

Status CheckImageType(std::string_view media_type, std::string_view path) {
  for (const std::string_view known : {"image/png", "image/jpeg", "image/gif", "image/webp"}) {
    if (media_type == known) return Status::Ok();
  }
  return FieldError(path, "expected an image of type " +
                              Choices({"image/png", "image/jpeg", "image/gif", "image/webp"}) + ", found " +
                              Quoted(media_type));
}

Result<ContentPart> ImagePart(std::string url, std::string detail, std::string_view path) {
  constexpr std::string_view kBase64 = "base64,";
  if (url.starts_with("http://") || url.starts_with("https://")) {
    if (url.size() > kMaxImageUrlBytes) {
      return FieldError(path, "expected an address of at most " + std::to_string(kMaxImageUrlBytes) + " bytes, found " +
                                  std::to_string(url.size()));
    }
  } else if (const size_t data = url.find(kBase64); data != std::string::npos) {
    std::string_view media_type = std::string_view(url).substr(0, data);
    if (media_type.starts_with("data:")) media_type.remove_prefix(5);
    media_type = media_type.substr(0, media_type.find(';'));
    if (!media_type.empty()) DEEPINFER_RETURN_IF_ERROR(CheckImageType(media_type, path));
  } else {
    return FieldError(path, "expected an http or https address or a base64 data URL, found " + Quoted(url));
  }
  return ContentPart{"", ImageSource{std::move(url), std::move(detail)}};
}

Status ReadContent(const JsonValue& content, const std::string& path, bool allow_images, PartReader read_part,
                   Message* message) {
  if (const std::string* text = content.AsString()) {
    message->content.push_back(TextPart(*text));
    return Status::Ok();
  }
  const JsonValue::Array* parts = content.AsArray();
  if (parts == nullptr) return ExpectedError(path, "a string or an array of parts", content);
  for (size_t i = 0; i < parts->size(); ++i) {
    DEEPINFER_ASSIGN_OR_RETURN(const ObjectReader reader, ObjectReader::Of((*parts)[i], ItemPath(path, i)));
    DEEPINFER_ASSIGN_OR_RETURN(ContentPart part, read_part(reader));
    if (part.image.has_value() && !allow_images) {
      return FieldError(reader.path(), "an image cannot stand here; images belong in user messages and tool results");
    }
    message->content.push_back(std::move(part));
  }
  return Status::Ok();
}

}  // namespace deepinfer
