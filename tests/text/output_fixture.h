// Feeding a parser in pieces, and comparing what comes out whatever the pieces.
#ifndef DEEPINFER_TESTS_TEXT_OUTPUT_FIXTURE_H_
#define DEEPINFER_TESTS_TEXT_OUTPUT_FIXTURE_H_

#include <cstdint>
#include <random>
#include <string>
#include <string_view>
#include <vector>

#include "text/output_parser.h"

namespace deepinfer {

/// For test messages.
std::ostream& operator<<(std::ostream& out, const OutputEvent& event);

namespace testing {

/// A seed for this run: $DEEPINFER_TEST_SEED, else random; printed, so that a failure can be repeated.
uint64_t RunSeed(const char* what);

/// The characters of `text`; a mark counts as one.
std::vector<std::string_view> Characters(std::string_view text);

/// `text` with the spellings of the two special tokens replaced by marks.
std::string WithMarks(std::string_view text);
OutputParserOptions WithMarks(OutputParserOptions options);

/// Neighbouring pieces of the same thing become one event.
std::vector<OutputEvent> Merged(const std::vector<OutputEvent>& events);

/// How an answer came out. `events` are merged.
struct Parsed {
  std::vector<OutputEvent> events;
  std::string stop_sequence;
  int calls = 0;
  bool operator==(const Parsed&) const = default;

  std::string All(OutputEvent::Kind kind) const;  ///< the texts of the events of that kind, joined
};
std::ostream& operator<<(std::ostream& out, const Parsed& parsed);

/// Feeds `pieces` one by one. Checks on the way what holds for any output (a test failure when it does not): events of
/// whole characters and in order; with `complete`, calls that end and whose arguments are JSON objects.
Parsed Parse(const OutputParserOptions& options, const std::vector<std::string_view>& pieces, bool complete = true);
Parsed Parse(const OutputParserOptions& options, std::string_view text, bool complete = true);

/// `text` cut at random characters, into pieces of `most` characters at most.
std::vector<std::string_view> RandomPieces(std::string_view text, size_t most, std::mt19937_64* random);

}  // namespace testing
}  // namespace deepinfer

#endif  // DEEPINFER_TESTS_TEXT_OUTPUT_FIXTURE_H_
