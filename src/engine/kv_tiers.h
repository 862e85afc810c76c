// The tiers that an engine's options ask for, and the namespace of what it keeps in them.
//
// Thread-safety: pure functions but for MakeKvTiers, which opens files and connections. Ownership: the caller's.
#ifndef DEEPINFER_ENGINE_KV_TIERS_H_
#define DEEPINFER_ENGINE_KV_TIERS_H_

#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "cache/kv_tier.h"
#include "cache/replay_plan.h"
#include "cache/tier_store.h"
#include "deepinfer/engine.h"
#include "deepinfer/status.h"
#include "engine/engine_plan.h"
#include "engine/kv_transfers.h"
#include "engine/model_files.h"

namespace deepinfer {

/// Goes up whenever a kernel of the CPU, or the order of a reduction, changes a bit of a KV row or of a window ring.
/// GPUs have a number of their own (ops/cuda/cuda_ops.h).
inline constexpr int kNumericsVersion = 1;

struct KvTiers {
  std::vector<std::unique_ptr<KvTier>> nearest_first;
  TierStoreOptions store;
  KvTransferOptions transfers;
};

using KvTierFactory = std::function<Result<KvTiers>(const KvNamespace& name_space)>;

/// Covers the checkpoint, tokenizer, activation format, block and ring layout, the numerics of the Ops and the key of
/// encryption.
KvNamespace NamespaceOf(const ModelFiles& files, std::string_view fingerprint, const EnginePlan& plan,
                        std::string_view numerics, const std::optional<KvKey>& secret = std::nullopt);

/// Rows of different replay settings, or of different salts, are never mixed.
KvScope ScopeOf(const KvNamespace& name_space, const ReplaySettings& settings, std::string_view salt);

/// Of what the namespace says: its records are plain or encrypted with this secret.
bool MayBeEncryptedWith(const KvKey& secret, const KvNamespace& name_space);

/// The key of EngineOptions::kv_key_file.
Result<KvKey> ReadKvSecret(const std::string& path);

/// None when the options ask for none. kInvalidArgument names the option.
Result<KvTiers> MakeKvTiers(const EngineOptions& options, const KvNamespace& name_space,
                            const std::optional<KvKey>& secret);

/// Tells users that a tier is down, why, and which option to look at.
std::string TierDownText(std::string_view tier, std::string_view reason);

std::vector<KvTierStatistics> StatisticsOf(const std::vector<TierReport>& reports);

}  // namespace deepinfer

#endif  // DEEPINFER_ENGINE_KV_TIERS_H_
