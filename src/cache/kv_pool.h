// KvPool: the BlockPool of KV blocks. A KV block is everything global of kKvBlockTokens tokens: the compressed rows and
// index keys of every kv source, one contiguous piece, so that a block is reused, moved and dropped as a whole
// (a prefix whose index keys are shorter than its rows cannot exist).
//
// Thread-safety and ownership: BlockPool's.
#ifndef DEEPINFER_CACHE_KV_POOL_H_
#define DEEPINFER_CACHE_KV_POOL_H_

#include "cache/block_pool.h"

namespace deepinfer {

/// Tokens of a KV block: the quantum of reuse. Even, so that no pair of a ratio-2 compressor straddles two blocks.
inline constexpr int64_t kKvBlockTokens = 64;

using KvPool = BlockPool;

}  // namespace deepinfer

#endif  // DEEPINFER_CACHE_KV_POOL_H_
