// EngineCore: the Engine on files that are already open. Tests use it directly; Engine::Open adds the folder.
//
// Threads: callers submit; the engine thread owns scheduler and cache; the device thread runs steps; the Ops spread
// them over their pool. Submissions and cancellations arrive through one inbox, tokens leave through the streams.
// Thread-safety: as Engine. Ownership: as Engine.
#ifndef DEEPINFER_ENGINE_ENGINE_CORE_H_
#define DEEPINFER_ENGINE_ENGINE_CORE_H_

#include <atomic>
#include <condition_variable>
#include <functional>
#include <memory>
#include <mutex>
#include <thread>
#include <vector>

#include "deepinfer/engine.h"
#include "engine/calibration.h"
#include "engine/device_thread.h"
#include "engine/engine_plan.h"
#include "engine/kv_tiers.h"
#include "engine/kv_transfers.h"
#include "engine/model_files.h"
#include "engine/scheduler.h"
#include "grammar/grammar_compiler.h"

namespace deepinfer {

class EngineCore final : public Engine {
 public:
  /// `make_tiers`: what is behind the KV pool; empty: what the options say. `progress`: of the weights, on this thread.
  /// `ops`: what computes; null: the device that the options name.
  static Result<std::unique_ptr<EngineCore>> Create(ModelFiles files, const EngineOptions& options,
                                                    const KvTierFactory& make_tiers = {},
                                                    const LoadProgress& progress = {},
                                                    std::unique_ptr<Ops> ops = nullptr);
  ~EngineCore() override;

  const EngineOptions& options() const override { return plan_.options; }
  std::string warning() const override;
  Status health() const override;
  Result<std::unique_ptr<GenerationStream>> Submit(GenerationRequest request) override;
  Status Tokenize(const std::string& text, bool special, std::vector<int32_t>* ids) const override;
  std::string Detokenize(std::span<const int32_t> ids) const override;
  int32_t bos_token_id() const override { return static_cast<int32_t>(files_.checkpoint->config().bos_token_id); }
  std::vector<PlannedMemory> memory_plan() const override;
  EngineStatistics statistics() const override;
  void ClearPrefixCache() override;
  void WaitIdle() override;

  const ModelFiles& files() const { return files_; }
  const StepProfile& profile() const { return profile_; }
  /// Null without tiers.
  TierStore* tiers() { return store_.get(); }
  /// Waits until the tiers have what ended requests left them. Only with tiers. kIo: not within so many seconds; says
  /// what was waited for.
  Status FlushTiers(double seconds);
  const KvNamespace& kv_namespace() const { return kv_namespace_; }
  /// Compiles grammars for GenerationRequest::grammar; any thread.
  GrammarCompiler& grammars() { return *grammars_; }

  /// From the blocks of drafts so far. Only while nothing runs (WaitIdle).
  Result<Calibration> FitCalibration() const { return deepinfer::FitCalibration(*observations_, fingerprint_); }
  const std::string& fingerprint() const { return fingerprint_; }
  const EnginePlan& plan() const { return plan_; }

 private:
  struct Inbox;
  class Stream;

  EngineCore(ModelFiles files, EnginePlan plan, std::unique_ptr<Ops> ops);

  /// Takes all memory but temporaries; then, once the weights are there, Start().
  Status Reserve(const KvTierFactory& make_tiers);
  Status Start();
  Status BuildTiers(const KvTierFactory& make_tiers);
  Status CheckRequest(const GenerationRequest& request, int64_t* most_tokens) const;
  Status TokenizeBadWords(SamplingParams* sampling) const;
  /// Null when any text will do. Waits for the grammar to be compiled.
  Result<std::shared_ptr<const OutputConstraint>> ConstraintOf(const GenerationRequest& request) const;
  void Loop();
  void ReadOldest();
  /// Any thread; the first failure is the one that counts.
  void RememberFailure(const Status& failure);
  void Learn(std::span<const float> confidence, const SlotResult& slot);
  void PublishStatistics();
  void RunOnEngineThread(std::function<void()> task);

  ModelFiles files_;
  EnginePlan plan_;
  std::string fingerprint_;
  std::unique_ptr<GrammarCompiler> grammars_;
  std::unique_ptr<Ops> ops_;
  std::unique_ptr<Model> model_;
  DeviceMemory pieces_;
  StepProfile profile_;
  std::unique_ptr<KvManager> kv_;
  KvNamespace kv_namespace_;
  mutable std::mutex health_mutex_;  // outlives the device's thread
  Status health_;                    // under health_mutex_
  // Null without tiers. The store is destroyed first: until then it may read the pool. The copies are null on the CPU,
  // too; they lend the store memory.
  std::unique_ptr<BlockCopies> copies_;
  std::unique_ptr<KvTransfers> transfers_;
  std::unique_ptr<TierStore> store_;
  std::unique_ptr<StepExecutor> executor_;
  std::unique_ptr<Scheduler> scheduler_;
  std::unique_ptr<DeviceThread> device_;
  Calibration calibration_;
  bool calibrated_ = false;
  std::string device_note_;          // what the device cannot do and was not insisted on
  std::string calibration_problem_;  // a file that could not be used
  std::atomic<uint64_t> arrivals_{0};

  // The engine thread's.
  std::unique_ptr<DraftObservations> observations_;
  std::unique_ptr<SpeculationStatistics> speculation_;
  std::vector<float> survival_;
  RowCounts rows_;
  int64_t steps_ = 0;
  double device_seconds_ = 0;
  double host_seconds_ = 0;

  std::shared_ptr<Inbox> inbox_;
  mutable std::mutex statistics_mutex_;
  EngineStatistics statistics_;
  std::vector<int64_t> cached_by_tier_;  // under statistics_mutex_, as statistics_
  std::thread thread_;
};

}  // namespace deepinfer

#endif  // DEEPINFER_ENGINE_ENGINE_CORE_H_
