#include "engine/engine_core.h"

#include <fmt/format.h>

#include <algorithm>
#include <utility>

#include "base/clock.h"
#include "base/machine.h"
#include "checkpoint/fingerprint.h"
#include "engine/measure_profile.h"
#include "engine/take_temporaries.h"
#include "ops/device.h"
#include "text/prompt_segments.h"

namespace deepinfer {
namespace {

/// Blocks of drafts after which the confidence head is calibrated for the first time.
constexpr int64_t kFirstCalibration = 1000;

}  // namespace

/// What other threads hand to the engine thread. Streams keep it alive to wake the engine when they cancel.
struct EngineCore::Inbox {
  std::mutex mutex;
  std::condition_variable changed;
  std::vector<std::shared_ptr<Request>> submitted;
  std::vector<std::function<void()>> tasks;
  bool wake = false;
  bool stop = false;
  bool idle = true;

  void Wake() {
    {
      const std::lock_guard lock(mutex);
      wake = true;
    }
    changed.notify_all();
  }
};

class EngineCore::Stream final : public GenerationStream {
 public:
  Stream(std::shared_ptr<StreamState> state, std::shared_ptr<Inbox> inbox)
      : state_(std::move(state)), inbox_(std::move(inbox)) {}
  /// Nobody will read on.
  ~Stream() override { Cancel(); }

  bool Next(GenerationDelta* delta) override { return state_->Next(delta); }
  bool NextFor(GenerationDelta* delta, int milliseconds, bool* timed_out) override {
    return state_->NextFor(delta, milliseconds, timed_out);
  }
  void Cancel() override {
    state_->Cancel();
    inbox_->Wake();
  }
  void CancelChoice(int index) override {
    state_->CancelChoice(index);
    inbox_->Wake();
  }
  const Generation& Wait() override { return state_->Wait(); }

 private:
  std::shared_ptr<StreamState> state_;
  std::shared_ptr<Inbox> inbox_;
};

Result<std::unique_ptr<Engine>> Engine::Open(const EngineOptions& options) {
  DEEPINFER_RETURN_IF_ERROR(options.Validate());
  DEEPINFER_ASSIGN_OR_RETURN(ModelFiles files, ModelFiles::Load(options.model));
  DEEPINFER_ASSIGN_OR_RETURN(std::unique_ptr<EngineCore> engine, EngineCore::Create(std::move(files), options));
  return std::unique_ptr<Engine>(std::move(engine));
}

Result<Generation> Engine::Generate(GenerationRequest request) {
  DEEPINFER_ASSIGN_OR_RETURN(const std::unique_ptr<GenerationStream> stream, Submit(std::move(request)));
  return stream->Wait();
}

Result<std::unique_ptr<EngineCore>> EngineCore::Create(ModelFiles files, const EngineOptions& options,
                                                       const KvTierFactory& make_tiers, const LoadProgress& progress,
                                                       std::unique_ptr<Ops> ops) {
  DEEPINFER_RETURN_IF_ERROR(options.Validate());
  const int threads = options.threads > 0 ? options.threads : AvailableThreads();
  std::string device_note;
  const Checkpoint& checkpoint = *files.checkpoint;
  if (ops == nullptr) {
    DEEPINFER_ASSIGN_OR_RETURN(ops, MakeOps(options.device, threads));
  }
  WeightPlacement placement = PlacementOf(options, checkpoint.config(), *ops);
  Result<FreeMemory> room = FindFreeMemory(*ops, checkpoint, placement);
  if (options.device == "auto" && !ops->computes_on_host_memory() && !room.ok()) {
    device_note = "the GPU is not used: " + room.status().message();
    DEEPINFER_ASSIGN_OR_RETURN(ops, MakeOps("cpu", threads));
    placement = PlacementOf(options, checkpoint.config(), *ops);
    room = FindFreeMemory(*ops, checkpoint, placement);
  }
  if (!room.ok()) return room.status();
  DEEPINFER_ASSIGN_OR_RETURN(EnginePlan plan, PlanEngine(options, checkpoint.config(), *room));
  plan.weights = placement;
  std::unique_ptr<EngineCore> engine(new EngineCore(std::move(files), std::move(plan), std::move(ops)));
  engine->device_note_ = std::move(device_note);
  DEEPINFER_RETURN_IF_ERROR(engine->Reserve(make_tiers));
  DEEPINFER_RETURN_IF_ERROR(CheckPlan(engine->memory_plan(), *room));
  if (options.load_weights) {
    DEEPINFER_RETURN_IF_ERROR(PlaceWeights(*engine->files_.checkpoint, placement, *engine->ops_, progress));
  }
  DEEPINFER_RETURN_IF_ERROR(engine->Start());
  DEEPINFER_RETURN_IF_ERROR(CheckPlan(engine->memory_plan(), *room));
  return engine;
}

EngineCore::EngineCore(ModelFiles files, EnginePlan plan, std::unique_ptr<Ops> ops)
    : files_(std::move(files)), plan_(std::move(plan)), ops_(std::move(ops)), inbox_(std::make_shared<Inbox>()) {}

Status EngineCore::Reserve(const KvTierFactory& make_tiers) {
  const ModelConfig& config = files_.checkpoint->config();
  std::vector<int32_t> control_tokens;
  if (const std::optional<int32_t> dsml = files_.tokenizer->IdOfAddedToken(special_token::kDsml))
    control_tokens.push_back(*dsml);
  grammars_ = std::make_unique<GrammarCompiler>(*files_.tokenizer, static_cast<int32_t>(config.vocab_size),
                                                std::move(control_tokens));
  DEEPINFER_ASSIGN_OR_RETURN(model_, Model::Create(*files_.checkpoint, files_.token_map, *ops_, plan_.model));
  DEEPINFER_ASSIGN_OR_RETURN(kv_, KvManager::Create(plan_.kv, [this](int64_t bytes) { return ops_->Allocate(bytes); }));
  fingerprint_ = Fingerprint(*files_.checkpoint);
  DEEPINFER_RETURN_IF_ERROR(BuildTiers(make_tiers));
  Result<DeviceMemory> pieces = ops_->Allocate(plan_.piece_bytes * plan_.options.max_num_seqs);
  if (!pieces.ok()) {
    return Status::ResourceExhausted(
        fmt::format("no memory for the window rings of {} sequences: {}; lower max_num_seqs",
                    plan_.options.max_num_seqs, HumanBytes(plan_.piece_bytes * plan_.options.max_num_seqs)));
  }
  pieces_ = std::move(*pieces);
  return Status::Ok();
}

Status EngineCore::Start() {
  const int64_t block = std::max<int64_t>(files_.checkpoint->config().dspark_block_size, 1);
  if (plan_.options.load_weights && !ops_->computes_on_host_memory()) {
    DEEPINFER_RETURN_IF_ERROR(TakeTemporaries(*model_, *ops_, plan_));
  }
  if (plan_.options.draft_length > 0) {
    if (plan_.options.profile_steps && plan_.options.variable_drafts) {
      DEEPINFER_ASSIGN_OR_RETURN(profile_, MeasureProfile(*model_, *ops_, plan_));
    }
    Result<Calibration> calibration = LoadCalibration(files_.checkpoint->directory(), block, fingerprint_);
    if (calibration.ok()) {
      calibration_ = *calibration;
      calibrated_ = true;
    } else if (calibration.status().code() != StatusCode::kNotFound) {
      // The user's file stays as it is.
      calibration_problem_ = calibration.status().message();
      plan_.options.store_calibration = false;
    }
  }
  observations_ = std::make_unique<DraftObservations>(block);
  speculation_ = std::make_unique<SpeculationStatistics>(block);
  survival_.resize(static_cast<size_t>(block));
  plan_.executor.tokenizer = files_.tokenizer.get();
  DEEPINFER_ASSIGN_OR_RETURN(executor_, StepExecutor::Create(*model_, *ops_, plan_.executor, pieces_.data(), profile_));
  executor_->drafter().SetCalibration(calibration_);

  SchedulerOptions scheduling;
  scheduling.max_num_seqs = plan_.options.max_num_seqs;
  scheduling.step_cost = static_cast<double>(plan_.options.max_num_batched_tokens);
  scheduling.encoder_cost = plan_.encoder_cost;
  scheduling.step_rows = plan_.model.max_rows_per_step;
  scheduling.logits_rows = plan_.model.max_logits_rows;
  scheduling.draft_length = plan_.options.draft_length;
  scheduling.draft_block = static_cast<int32_t>(block);
  scheduling.tpot_target_seconds = plan_.options.tpot_target_ms / 1e3;
  scheduler_ = std::make_unique<Scheduler>(scheduling, *kv_, transfers_.get());
  scheduler_->on_drafts = [this](std::span<const float> confidence, const SlotResult& slot) {
    Learn(confidence, slot);
  };
  device_ = std::make_unique<DeviceThread>(*executor_);
  PublishStatistics();
  thread_ = std::thread([this] { Loop(); });
  return Status::Ok();
}

Status EngineCore::BuildTiers(const KvTierFactory& make_tiers) {
  if (!plan_.options.prefix_cache) return Status::Ok();
  std::optional<KvKey> secret;
  if (!plan_.options.kv_key_file.empty()) {
    DEEPINFER_ASSIGN_OR_RETURN(secret, ReadKvSecret(plan_.options.kv_key_file));
  }
  kv_namespace_ = NamespaceOf(files_, fingerprint_, plan_, ops_->numerics(), secret);
  DEEPINFER_ASSIGN_OR_RETURN(
      KvTiers tiers, make_tiers ? make_tiers(kv_namespace_) : MakeKvTiers(plan_.options, kv_namespace_, secret));
  if (tiers.nearest_first.empty()) return Status::Ok();
  tiers.store.block_bytes = plan_.kv.block_bytes;
  if (!ops_->computes_on_host_memory()) {
    const int64_t chunk = std::max(tiers.store.chunk_bytes, KvTransfers::kPieceBytes) + plan_.kv.block_bytes;
    DEEPINFER_ASSIGN_OR_RETURN(copies_, BlockCopies::Create(*ops_, chunk, [this](std::function<void()> task) {
                                 device_->Post(std::move(task));
                               }));
    copies_->on_failure = [this](const Status& cause) { RememberFailure(DeviceFailed(cause)); };
    tiers.store.landing = copies_.get();
  }
  store_ = std::make_unique<TierStore>(std::move(tiers.nearest_first), tiers.store);
  KvTransferOptions transfers = tiers.transfers;
  transfers.least_tokens = plan_.options.kv_least_tokens;
  transfers_ = std::make_unique<KvTransfers>(
      *kv_, *store_, transfers, [inbox = inbox_] { inbox->Wake(); }, copies_.get());
  return Status::Ok();
}

EngineCore::~EngineCore() {
  if (thread_.joinable()) {
    {
      const std::lock_guard lock(inbox_->mutex);
      inbox_->stop = true;
    }
    inbox_->changed.notify_all();
    thread_.join();
  }
  // Fetches must not hand over any more when the device's thread goes.
  if (copies_ != nullptr) copies_->Close();
}

Status EngineCore::CheckRequest(const GenerationRequest& request, int64_t* most_tokens) const {
  DEEPINFER_RETURN_IF_ERROR(request.sampling.Validate());
  const int64_t prompt = std::ssize(request.prompt);
  const int64_t context = plan_.options.max_model_len;
  if (prompt == 0) return Status::InvalidArgument("prompt: expected at least one token, found none");
  if (prompt >= context) {
    return Status::InvalidArgument(
        fmt::format("prompt: {} tokens leave no room in the context of {} tokens; shorten it or enlarge the context",
                    prompt, context));
  }
  const int64_t vocabulary = files_.checkpoint->config().vocab_size;
  const auto check_ids = [&](const char* field, const auto& ids, const auto& id_of) {
    for (const auto& entry : ids) {
      const int32_t id = id_of(entry);
      if (id < 0 || id >= vocabulary) {
        return Status::InvalidArgument(
            fmt::format("{}: expected token ids of 0 to {}, found {}", field, vocabulary - 1, id));
      }
    }
    return Status::Ok();
  };
  const auto same = [](int32_t id) { return id; };
  DEEPINFER_RETURN_IF_ERROR(check_ids("prompt", request.prompt, same));
  DEEPINFER_RETURN_IF_ERROR(check_ids("stop_token_ids", request.sampling.stop_token_ids, same));
  DEEPINFER_RETURN_IF_ERROR(
      check_ids("logit_bias", request.sampling.logit_bias, [](const LogitBias& bias) { return bias.id; }));
  for (const std::vector<int32_t>& sequence : request.sampling.bad_token_sequences) {
    DEEPINFER_RETURN_IF_ERROR(check_ids("bad_token_sequences", sequence, same));
  }

  const int64_t pool_tokens = plan_.kv.blocks * kKvBlockTokens - 1;
  const int64_t limit = std::min(context, pool_tokens);
  if (prompt >= limit) {
    return Status::ResourceExhausted(fmt::format(
        "prompt: {} tokens can never fit into the KV pool of {} tokens ({}); shorten it or enlarge the KV memory",
        prompt, pool_tokens, HumanBytes(plan_.options.kv_memory_bytes)));
  }
  const bool limited = request.sampling.max_tokens != SamplingParams::kNoLimit;
  // The context cuts an answer; the pool must not.
  const int64_t asked = limited ? prompt + std::min(request.sampling.max_tokens, context - prompt) : limit;
  if (asked > limit) {
    return Status::ResourceExhausted(fmt::format(
        "max_tokens: a prompt of {} and an answer of {} tokens can never fit into the KV pool of {} tokens ({}); lower "
        "max_tokens or enlarge the KV memory",
        prompt, asked - prompt, pool_tokens, HumanBytes(plan_.options.kv_memory_bytes)));
  }
  *most_tokens = asked;
  return Status::Ok();
}

Status EngineCore::TokenizeBadWords(SamplingParams* sampling) const {
  for (const std::string& word : sampling->bad_words) {
    // As the word stands at the beginning of a text, and behind a space.
    for (const std::string& text : {word, " " + word}) {
      std::vector<int32_t> ids;
      DEEPINFER_RETURN_IF_ERROR(files_.tokenizer->Encode(text, &ids));
      if (!ids.empty()) sampling->bad_token_sequences.push_back(std::move(ids));
    }
  }
  return Status::Ok();
}

Result<std::shared_ptr<const OutputConstraint>> EngineCore::ConstraintOf(const GenerationRequest& request) const {
  const StructuredOutput& wanted = request.sampling.structured_output;
  std::shared_ptr<const CompiledGrammar> grammar = request.grammar;
  if (grammar == nullptr) {
    if (!wanted.wanted()) return std::shared_ptr<const OutputConstraint>();
    Result<std::shared_ptr<const CompiledGrammar>> compiled = grammars_->Get(wanted);
    if (!compiled.ok()) {
      return Status(compiled.status().code(), "structured_output: " + compiled.status().message());
    }
    grammar = *compiled;
  }
  if (request.constrained_prompt_tokens < 0 || request.constrained_prompt_tokens > std::ssize(request.prompt)) {
    return Status::InvalidArgument("constrained_prompt_tokens: expected at most the length of the prompt");
  }
  auto constraint = std::make_shared<OutputConstraint>();
  constraint->grammar = std::move(grammar);
  const std::vector<int64_t>& eos = files_.checkpoint->config().eos_token_ids;
  constraint->end_ids.assign(eos.begin(), eos.end());
  constraint->prompt_tokens = request.constrained_prompt_tokens;
  if (request.starts_in_reasoning && request.end_of_reasoning.has_value()) {
    constraint->begins_behind = *request.end_of_reasoning;
    constraint->barred_before = constraint->end_ids;
    constraint->barred_before.insert(constraint->barred_before.end(), request.barred_in_reasoning.begin(),
                                     request.barred_in_reasoning.end());
  }
  return std::shared_ptr<const OutputConstraint>(std::move(constraint));
}

Result<std::unique_ptr<GenerationStream>> EngineCore::Submit(GenerationRequest request) {
  DEEPINFER_RETURN_IF_ERROR(health());
  int64_t most_tokens = 0;
  DEEPINFER_RETURN_IF_ERROR(CheckRequest(request, &most_tokens));
  SamplingParams sampling = request.sampling;
  DEEPINFER_RETURN_IF_ERROR(TokenizeBadWords(&sampling));
  std::vector<int32_t> end_ids = sampling.stop_token_ids;
  DEEPINFER_ASSIGN_OR_RETURN(const std::shared_ptr<const OutputConstraint> constraint, ConstraintOf(request));
  // Nothing can follow the end of a constrained text.
  if (!sampling.ignore_eos || constraint != nullptr) {
    const std::vector<int64_t>& eos = files_.checkpoint->config().eos_token_ids;
    end_ids.insert(end_ids.end(), eos.begin(), eos.end());
  }
  ReplayMode mode = request.replay.value_or(plan_.options.replay);
  // Every token of the prompt must reach the head.
  if (sampling.prompt_logprobs >= 0) mode = ReplayMode::kExact;

  const auto state = std::make_shared<StreamState>(sampling.n, std::move(request.on_news));
  state->Update([&](Generation* generation) {
    generation->prompt_tokens = std::ssize(request.prompt);
    generation->replay = mode;
  });
  const double now = NowSeconds();
  std::vector<std::shared_ptr<Request>> requests;
  for (int i = 0; i < sampling.n; ++i) {
    auto one = std::make_shared<Request>();
    one->arrival = arrivals_.fetch_add(1) + 1;
    one->priority = request.priority;
    one->choice = i;
    one->stream = state;
    if (i > 0) one->leader = requests.front();
    one->sampling = sampling;
    one->sampling.seed = SamplingParams::SeedOfChoice(sampling.seed, i);
    one->end_ids = end_ids;
    one->constraint = constraint;
    one->prompt_tokens = std::ssize(request.prompt);
    one->most_tokens = most_tokens;
    one->output.emplace(request, *files_.tokenizer);
    one->submitted_seconds = now;
    one->ids = request.prompt;
    // Grows without moving while it is generated, up to a point.
    one->ids.reserve(static_cast<size_t>(std::min<int64_t>(most_tokens, std::ssize(request.prompt) + 256)));
    one->cache.settings = plan_.settings(mode);
    one->cache.name_space = std::string(ReplayModeName(mode)) + ":" + request.cache_salt;
    if (store_ != nullptr) {
      one->transfer.scope = ScopeOf(kv_namespace_, one->cache.settings, request.cache_salt);
      one->transfer.ttl_seconds = request.cache_ttl_seconds.value_or(plan_.options.kv_ttl_seconds);
      one->transfer.no_store = request.no_store;
      if (i == 0) ExtendKeys(one->transfer.scope.root, one->ids, kKvBlockTokens, &one->transfer.keys);
      if (i > 0) one->transfer.keys = requests.front()->transfer.keys;
    }
    requests.push_back(std::move(one));
  }
  {
    const std::lock_guard lock(inbox_->mutex);
    if (inbox_->stop) return Status::Cancelled("the engine is closing");
    inbox_->idle = false;
    inbox_->submitted.insert(inbox_->submitted.end(), requests.begin(), requests.end());
  }
  inbox_->changed.notify_all();
  return std::unique_ptr<GenerationStream>(std::make_unique<Stream>(state, inbox_));
}

void EngineCore::Loop() {
  std::vector<std::shared_ptr<Request>> submitted;
  std::vector<std::function<void()>> tasks;
  const int depth = plan_.options.asynchronous ? DeviceThread::kMostInFlight : 1;
  while (true) {
    bool stop = false;
    {
      std::unique_lock lock(inbox_->mutex);
      const auto news = [&] {
        return inbox_->stop || inbox_->wake || !inbox_->submitted.empty() || !inbox_->tasks.empty();
      };
      if (scheduler_->idle() && device_->in_flight() == 0) {
        if (!news()) {
          inbox_->idle = true;
          inbox_->changed.notify_all();
          if (store_ != nullptr) store_->SetComputing(false);
          inbox_->changed.wait(lock, news);
        }
      }
      inbox_->wake = false;
      submitted.swap(inbox_->submitted);
      tasks.swap(inbox_->tasks);
      stop = inbox_->stop;
    }
    if (store_ != nullptr) store_->SetComputing(true);
    double begin = NowSeconds();
    for (std::shared_ptr<Request>& request : submitted) scheduler_->Submit(std::move(request));
    submitted.clear();
    if (stop) {
      while (device_->in_flight() > 0) ReadOldest();
      scheduler_->CancelAll();
      PublishStatistics();
      scheduler_->TellEnded();
      for (const std::function<void()>& task : tasks) task();
      const std::lock_guard lock(inbox_->mutex);
      for (const std::function<void()>& task : inbox_->tasks) task();
      inbox_->tasks.clear();
      inbox_->idle = true;
      inbox_->changed.notify_all();
      return;
    }
    if (!tasks.empty()) {
      for (const std::function<void()>& task : tasks) task();
      tasks.clear();
      begin = NowSeconds();  // what tasks take is no part of a step
    }
    scheduler_->DropCancelled();
    if (transfers_ != nullptr) transfers_->Poll(begin, scheduler_->reserve());
    const bool planned = scheduler_->Plan(device_->next_plan());
    if (planned) device_->Launch();
    host_seconds_ += NowSeconds() - begin;
    const bool reads = device_->in_flight() >= depth || (!planned && device_->in_flight() > 0);
    if (reads) ReadOldest();
    PublishStatistics();
    scheduler_->TellEnded();
    if (transfers_ != nullptr && !planned && !reads && !scheduler_->idle()) {
      // Requests wait for the tiers, or for memory that those still read.
      std::unique_lock lock(inbox_->mutex);
      const double seconds = std::clamp(transfers_->NextDeadline() - NowSeconds(), 0.0, 1.0);
      inbox_->changed.wait_for(lock, std::chrono::duration<double>(seconds), [&] {
        return inbox_->stop || inbox_->wake || !inbox_->submitted.empty() || !inbox_->tasks.empty();
      });
    }
  }
}

void EngineCore::ReadOldest() {
  const StepResult& result = device_->WaitOldest();
  const double begin = NowSeconds();
  // Before anybody is told that an answer has failed.
  if (!result.device.ok()) RememberFailure(result.device);
  scheduler_->Apply(result);
  ++steps_;
  device_seconds_ += result.seconds;
  rows_.encoder += result.rows.encoder;
  rows_.decoder += result.rows.decoder;
  rows_.logits += result.rows.logits;
  rows_.drafts += result.rows.drafts;
  host_seconds_ += NowSeconds() - begin;
}

void EngineCore::Learn(std::span<const float> confidence, const SlotResult& slot) {
  if (slot.drafted == 0) {
    speculation_->RecordPlain();
    return;
  }
  if (confidence.empty()) return;
  Survival(confidence, calibration_, survival_);
  speculation_->RecordDrafted(survival_, slot.verified, slot.accepted);
  observations_->Add({confidence, slot.verified, slot.accepted});
  if (calibrated_ || observations_->size() < kFirstCalibration) return;
  calibrated_ = true;
  Result<Calibration> fitted = FitCalibration();
  if (!fitted.ok()) return;
  calibration_ = *fitted;
  // A model in a folder that cannot be written is calibrated again in the next run.
  if (plan_.options.store_calibration) (void)SaveCalibration(files_.checkpoint->directory(), calibration_);
  device_->Post([this, calibration = calibration_] { executor_->drafter().SetCalibration(calibration); });
}

void EngineCore::PublishStatistics() {
  const SchedulerCounts counts = scheduler_->counts();
  const auto copy = [](std::span<const int64_t> from, std::vector<int64_t>* to) {
    to->assign(from.begin(), from.end());
  };
  const std::lock_guard lock(statistics_mutex_);
  EngineStatistics& statistics = statistics_;
  statistics.running = counts.running;
  statistics.waiting = counts.waiting;
  statistics.steps = steps_;
  statistics.finished = counts.finished;
  statistics.cancelled = counts.cancelled;
  statistics.preemptions = counts.preemptions;
  statistics.prompt_tokens = counts.prompt_tokens;
  statistics.cached_tokens = counts.cached_tokens;
  statistics.replayed_tokens = counts.replayed_tokens;
  statistics.generated_tokens = counts.generated_tokens;
  statistics.encoder_rows = rows_.encoder;
  statistics.decoder_rows = rows_.decoder;
  statistics.logits_rows = rows_.logits;
  statistics.draft_rows = rows_.drafts;
  statistics.kv_blocks = kv_->blocks().block_count();
  statistics.kv_blocks_free = kv_->blocks().free_count();
  statistics.kv_blocks_cached = kv_->tree().evictable_blocks();
  statistics.snapshots = kv_->snapshots().block_count();
  statistics.snapshots_free = kv_->snapshots().free_count();
  if (transfers_ != nullptr) {
    statistics.kv_transfers = transfers_->counts();
    cached_by_tier_ = scheduler_->cached_tokens_by_tier();
  }
  statistics.device_seconds = device_seconds_;
  statistics.host_seconds = host_seconds_;
  statistics.drafts = counts.drafts;
  copy(speculation_->verified_by_position(), &statistics.verified_by_position);
  copy(speculation_->accepted_by_position(), &statistics.accepted_by_position);
  copy(speculation_->length_histogram(), &statistics.verify_lengths);
  statistics.calibration_error = speculation_->SurvivalError();
}

EngineStatistics EngineCore::statistics() const {
  EngineStatistics statistics;
  std::vector<int64_t> cached_by_tier;
  {
    const std::lock_guard lock(statistics_mutex_);
    statistics = statistics_;
    cached_by_tier = cached_by_tier_;
  }
  if (store_ == nullptr) return statistics;
  statistics.kv_tiers = StatisticsOf(store_->report());
  for (size_t i = 0; i < statistics.kv_tiers.size(); ++i) statistics.kv_tiers[i].cached_tokens = cached_by_tier[i];
  return statistics;
}

Status EngineCore::FlushTiers(double seconds) {
  const double deadline = NowSeconds() + seconds;
  const int64_t copies = copies_ == nullptr ? 0 : copies_->Wait(seconds);
  if (copies > 0) {
    return Status::Io(
        fmt::format("tiers: {} copies of KV blocks from or to the device are not done after {} s", copies, seconds));
  }
  if (store_->Flush(std::max(deadline - NowSeconds(), 0.0))) return Status::Ok();
  std::string queues;
  for (const TierReport& tier : store_->report()) {
    if (tier.queued_bytes == 0) continue;
    queues +=
        fmt::format("{}'{}' has {} to write", queues.empty() ? "" : ", ", tier.name, HumanBytes(tier.queued_bytes));
  }
  if (queues.empty()) queues = "a call of a tier is under way";
  return Status::Io(fmt::format("tiers: not all is written after {} s: {}", seconds, queues));
}

void EngineCore::RunOnEngineThread(std::function<void()> task) {
  std::mutex mutex;
  std::condition_variable done;
  bool finished = false;
  {
    const std::lock_guard lock(inbox_->mutex);
    if (inbox_->stop) return;
    inbox_->tasks.push_back([&] {
      task();
      const std::lock_guard done_lock(mutex);
      finished = true;
      done.notify_all();
    });
  }
  inbox_->changed.notify_all();
  std::unique_lock lock(mutex);
  done.wait(lock, [&] { return finished; });
}

void EngineCore::ClearPrefixCache() {
  RunOnEngineThread([this] {
    // An answer that has ended holds its memory, and leaves it to the tree, until the last step with it is back.
    while (device_->in_flight() > 0) ReadOldest();
    scheduler_->DropCancelled();
    kv_->Clear();
    PublishStatistics();
  });
}

void EngineCore::WaitIdle() {
  std::unique_lock lock(inbox_->mutex);
  inbox_->changed.wait(lock, [this] { return inbox_->idle; });
}

Status EngineCore::Tokenize(const std::string& text, bool special, std::vector<int32_t>* ids) const {
  return special ? files_.tokenizer->EncodeWithSpecial(text, ids) : files_.tokenizer->Encode(text, ids);
}

std::string EngineCore::Detokenize(std::span<const int32_t> ids) const { return files_.tokenizer->Decode(ids, false); }

}  // namespace deepinfer
