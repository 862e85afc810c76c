// SseReader: bytes of an event stream, in any pieces, -> its events.
//
// Thread-safety: one thread at a time. Ownership: owns what is incomplete. Errors: none; lines that are no field are
// ignored. Source: WHATWG HTML, 9.2.6; lines end with LF or CR LF, as servers send them, never with CR alone.
#ifndef DEEPINFER_APP_SSE_READER_H_
#define DEEPINFER_APP_SSE_READER_H_

#include <functional>
#include <string>
#include <string_view>

namespace deepinfer {

class SseReader {
 public:
  /// `name` is empty for events without one. Both are valid during the call.
  using OnEvent = std::function<void(std::string_view name, std::string_view data)>;

  void Feed(std::string_view bytes, const OnEvent& on_event);

 private:
  void ReadLine(std::string_view line, const OnEvent& on_event);

  std::string line_;  // without its end so far
  std::string name_;
  std::string data_;
  bool has_data_ = false;
};

}  // namespace deepinfer

#endif  // DEEPINFER_APP_SSE_READER_H_
