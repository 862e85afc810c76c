// The calls of one assistant message that wait for their results, which must follow at once.
//
// Thread-safety: pure functions and values. Ownership: results own their texts; the JSON they read must outlive the
// call.
#ifndef DEEPINFER_API_OPEN_CALLS_H_
#define DEEPINFER_API_OPEN_CALLS_H_

#include <set>
#include <string>
#include <string_view>

#include "api/json_reader.h"

namespace deepinfer {

class OpenCalls {
 public:
  /// Adds the call that stands at `call`, whose field `id_key` holds `id`.
  Status Add(const std::string& id, const ObjectReader& call, std::string_view id_key) {
    last_call_ = call.path();
    if (ids_.insert(id).second) return Status::Ok();
    return FieldError(call.PathOf(id_key), "two calls have the id " + Quoted(id) + "; ids must be unique");
  }

  /// Takes the result that stands at `result`, whose field `id_key` says that it answers `id`.
  Status Answer(const std::string& id, const ObjectReader& result, std::string_view id_key) {
    if (ids_.erase(id) > 0) return Status::Ok();
    return FieldError(result.PathOf(id_key), Quoted(id) + " is no unanswered call of the assistant message before");
  }

  /// Fails when a result is missing; to be asked before anything but a result.
  Status CheckAnswered() const {
    if (ids_.empty()) return Status::Ok();
    return FieldError(last_call_, "the results of an assistant message's calls must follow it at once; none answers " +
                                      Quoted(*ids_.begin()));
  }

 private:
  std::set<std::string> ids_;
  std::string last_call_;
};

}  // namespace deepinfer

#endif  // DEEPINFER_API_OPEN_CALLS_H_
