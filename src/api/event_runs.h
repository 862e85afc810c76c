// Output events of one piece, with neighbours that a client may get as one delta put together.
//
// Thread-safety: a pure function. Ownership: the text given to the visitor lives until it returns.
#ifndef DEEPINFER_API_EVENT_RUNS_H_
#define DEEPINFER_API_EVENT_RUNS_H_

#include <string>
#include <string_view>
#include <vector>

#include "text/output_parser.h"

namespace deepinfer {

/// Calls `visit(kind, text, call)` for each run of reasoning, text or arguments of one call, and for each other event.
template <typename Visit>
void ForEachRun(const std::vector<OutputEvent>& events, Visit visit) {
  using Kind = OutputEvent::Kind;
  std::string joined;
  for (size_t i = 0; i < events.size();) {
    const OutputEvent& first = events[i++];
    const bool grows =
        first.kind == Kind::kReasoning || first.kind == Kind::kText || first.kind == Kind::kCallArguments;
    std::string_view text = first.text;
    for (; grows && i < events.size() && events[i].kind == first.kind && events[i].call == first.call; ++i) {
      if (joined.empty()) joined = text;
      joined += events[i].text;
      text = joined;
    }
    visit(first.kind, text, first.call);
    joined.clear();
  }
}

}  // namespace deepinfer

#endif  // DEEPINFER_API_EVENT_RUNS_H_
