// EngineCore: what of it does not work, for now (warning) or for good (health).
#include <fmt/format.h>

#include "engine/engine_core.h"

namespace deepinfer {

std::string EngineCore::warning() const {
  // An engine that only shows its plan drafts nothing.
  const bool trims = plan_.options.draft_length > 0 && plan_.options.variable_drafts && plan_.options.load_weights;
  std::string warning = trims ? executor_->drafter().warning() : std::string();
  if (store_ != nullptr) {
    for (const TierReport& tier : store_->report()) {
      if (!tier.warning.empty()) {
        warning += fmt::format("{}the KV tier '{}': {}", warning.empty() ? "" : "; ", tier.name, tier.warning);
      }
      if (tier.up) continue;
      warning += (warning.empty() ? "" : "; ") + TierDownText(tier.name, tier.reason);
    }
  }
  if (!device_note_.empty()) warning += (warning.empty() ? "" : "; ") + device_note_;
  if (!calibration_problem_.empty()) warning += (warning.empty() ? "" : "; ") + calibration_problem_;
  return warning;
}

Status EngineCore::health() const {
  const std::lock_guard lock(health_mutex_);
  return health_;
}

void EngineCore::RememberFailure(const Status& failure) {
  const std::lock_guard lock(health_mutex_);
  if (health_.ok()) health_ = failure;
}

}  // namespace deepinfer
