// Fingerprint: tells one checkpoint from another. What is stored beside a model and what is cached of it carry it.
//
// Thread-safety: pure function. It covers config.json, the names, types, shapes and places of all tensors, and samples
// of their bytes; two checkpoints that differ elsewhere only are taken for the same.
#ifndef DEEPINFER_CHECKPOINT_FINGERPRINT_H_
#define DEEPINFER_CHECKPOINT_FINGERPRINT_H_

#include <string>

#include "checkpoint/weights.h"

namespace deepinfer {

/// 16 hexadecimal digits.
std::string Fingerprint(const Checkpoint& checkpoint);

/// The same length, of the weights themselves: every byte of a small file, and of a large one pieces of all its parts,
/// so that it costs milliseconds. For what must never be taken for another checkpoint's.
std::string ContentFingerprint(const Checkpoint& checkpoint);

}  // namespace deepinfer

#endif  // DEEPINFER_CHECKPOINT_FINGERPRINT_H_
