#include "sse_reader.h"

#include <gtest/gtest.h>

namespace deepinfer::testing {

std::vector<SseEvent> ReadSse(std::string_view bytes) {
  std::vector<SseEvent> events;
  while (!bytes.empty()) {
    const size_t end = bytes.find("\n\n");
    if (end == std::string_view::npos) {
      ADD_FAILURE() << "an event without an end: " << bytes;
      break;
    }
    std::string_view block = bytes.substr(0, end);
    bytes.remove_prefix(end + 2);
    SseEvent event;
    if (block.starts_with("event: ")) {
      const size_t line = block.find('\n');
      event.event = block.substr(7, line - 7);
      block.remove_prefix(line == std::string_view::npos ? block.size() : line + 1);
    }
    EXPECT_TRUE(block.starts_with("data: ")) << block;
    EXPECT_EQ(block.find_first_of("\r\n"), std::string_view::npos) << block;
    block.remove_prefix(std::min<size_t>(6, block.size()));
    event.data = nlohmann::ordered_json::parse(block, nullptr, /*allow_exceptions=*/false);
    if (event.data.is_discarded()) event.data = std::string(block);
    events.push_back(std::move(event));
  }
  return events;
}

}  // namespace deepinfer::testing
