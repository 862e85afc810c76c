// Engram's token map: raw token id -> compressed token id, in which tokens that differ only in case, accents,
// compatibility form or surrounding blanks share one id. The hashes of the Engram tables are taken over compressed ids.
//
// Thread-safety: a pure function of the tokenizer. Source: spec architecture.md section (c.8).
#ifndef DEEPINFER_TEXT_TOKEN_MAP_H_
#define DEEPINFER_TEXT_TOKEN_MAP_H_

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "deepinfer/status.h"
#include "text/tokenizer.h"

namespace deepinfer {

/// One compressed id for every raw id, int32[vocab_size()]; new ids are given out in order of first appearance, so that
/// the number of distinct ids (`engram_compressed_vocab_size` of config.json) is the largest entry plus one.
/// Fails only when ICU's normalisation data cannot be loaded.
Result<std::vector<int32_t>> BuildTokenMap(const Tokenizer& tokenizer);

/// The normalisation behind the map: NFKC, NFD, marks (Mn, Mc, Me) dropped, each character lowercased, runs of blanks,
/// tabs and newlines to one blank, outer white space off (a lone blank stays). `text` is well-formed UTF-8.
Result<std::string> FoldTokenText(std::string_view text);

}  // namespace deepinfer

#endif  // DEEPINFER_TEXT_TOKEN_MAP_H_
