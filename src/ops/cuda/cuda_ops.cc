#include "ops/cuda/cuda_ops.h"

#include <cuda_runtime_api.h>

#include <algorithm>
#include <atomic>
#include <cstring>
#include <numeric>
#include <string>
#include <vector>

#include "ops/cuda/choose_tokens.h"
#include "ops/cuda/command_list.h"
#include "ops/cuda/device_attention.h"
#include "ops/cuda/device_engram.h"
#include "ops/cuda/device_linear.h"
#include "ops/cuda/device_mix.h"
#include "ops/cuda/kernels.h"
#include "ops/cuda/load_weights.h"
#include "ops/cuda/memory_pieces.h"
#include "ops/cuda/routing.h"
#include "ops/cuda/staging.h"
#include "ops/cuda/tensor_experts.h"

namespace deepinfer {
namespace {

using cuda::Staging;

/// Up to here a row has more than one block, and its ops do the work of their neighbours.
constexpr int64_t kFewRows = cuda::PreparedRows::kFewRows;
constexpr int64_t kVisibleStep = 1024;  // of the bound of visible keys: the launches of many steps in a row are equal
constexpr int64_t kRowsOfScores = 64;   // whose index scores are there at once

class CudaOps final : public Ops {
 public:
  CudaOps(const CudaOptions& options, std::string name, std::string numerics, cudaStream_t stream)
      : options_(options),
        name_(std::move(name)),
        numerics_(std::move(numerics)),
        stream_(stream),
        commands_(stream),
        host_(MakeCpuOps(1)) {}
  ~CudaOps() override { cudaStreamDestroy(stream_); }

  Status Create() { return commands_.Create(); }
  std::string_view name() const override { return name_; }
  std::string_view numerics() const override { return numerics_; }
  Status Reserve(const ScratchLimits& limits) override {
    DEEPINFER_RETURN_IF_ERROR(commands_.status());
    DEEPINFER_RETURN_IF_ERROR(ReserveIndexScores(limits));
    return host_->Reserve(limits);
  }
  /// Any thread: as of the op that began last.
  int64_t scratch_bytes() const override { return host_->scratch_bytes() + device_scratch_bytes(); }
  int64_t device_scratch_bytes() const override { return temporary_bytes_.load(std::memory_order_relaxed); }

  Status LoadWeights(std::span<const ListedBytes> list, const LoadProgress& progress) override {
    UseDevice();
    return options_.keep_weights ? cuda::LoadWeights(list, store_, commands_, progress) : Status::Ok();
  }
  Result<DeviceMemory> Allocate(int64_t bytes) override {
    if (!options_.device_memory) return DeviceMemory::OnHost(bytes);
    UseDevice();
    void* data = nullptr;
    if (bytes <= 0) return DeviceMemory();
    commands_.Flush();  // what is recorded may be of memory that was here before
    if (cudaMalloc(&data, static_cast<size_t>(bytes)) != cudaSuccess) {
      cudaGetLastError();  // the next launch is not to blame
      return Status::ResourceExhausted("the GPU has no " + std::to_string(bytes) + " bytes left");
    }
    // In the stream of the ops: the default stream would not be waited for by those that write here next.
    if (cudaMemsetAsync(data, 0, static_cast<size_t>(bytes), stream_) != cudaSuccess) {
      cudaFree(data);
      return Status::Internal("CUDA: memory cannot be cleared");
    }
    ranges_.Add(data, bytes);
    prepared_.Forget({static_cast<const float*>(data), 1, bytes / 4, bytes / 4});
    return DeviceMemory(static_cast<uint8_t*>(data), bytes, [](uint8_t* memory) { cudaFree(memory); });
  }
  int64_t free_bytes() const override {
    UseDevice();
    size_t free = 0;
    size_t total = 0;
    return cudaMemGetInfo(&free, &total) == cudaSuccess ? static_cast<int64_t>(free) : 0;
  }
  bool computes_on_host_memory() const override { return !options_.device_memory; }
  void CopyIn(const void* host, void* to, int64_t bytes) override {
    if (!ranges_.Contains(to)) return Ops::CopyIn(host, to, bytes);
    UseDevice();
    prepared_.Forget({static_cast<const float*>(to), 1, bytes / 4, bytes / 4});
    commands_.WillWrite(to, bytes);
    const auto* source = static_cast<const uint8_t*>(host);
    auto* target = static_cast<uint8_t*>(to);
    while (bytes > 0 && commands_.ok()) {
      const int64_t part = std::min(bytes, cuda::CommandList::kUploadBytes / 2);
      commands_.Add(&cuda::CopyBytes, commands_.Upload(source, part), static_cast<void*>(target), part);
      source += part;
      target += part;
      bytes -= part;
    }
  }
  void CopyOut(const void* from, void* host, int64_t bytes) override {
    if (!ranges_.Contains(from)) return Ops::CopyOut(from, host, bytes);
    UseDevice();
    commands_.Flush();
    if (bytes > 0 && commands_.ok()) {
      commands_.Check(cudaMemcpyAsync(host, from, static_cast<size_t>(bytes), cudaMemcpyDeviceToHost, stream_),
                      "copy from the GPU");
    }
    if (!commands_.Wait().ok()) std::memset(host, 0, static_cast<size_t>(bytes));
  }
  Result<DeviceMemory> AllocateStaging(int64_t bytes) override {
    UseDevice();
    return cuda::AllocateLocked(bytes);
  }
  Status CopyPiecesIn(std::span<const MemoryPiece> pieces) override {
    UseDevice();
    for (const MemoryPiece& piece : pieces) {
      prepared_.Forget({static_cast<const float*>(piece.to), 1, piece.bytes / 4, piece.bytes / 4});
    }
    return cuda::CopyPieces(commands_, pieces);
  }
  Status CopyPiecesOut(std::span<const MemoryPiece> pieces) override {
    UseDevice();
    return cuda::CopyPieces(commands_, pieces);
  }
  Status Finish() override {
    UseDevice();
    return commands_.Wait();
  }

  void BeginBeside(int64_t rows) override {
    if (options_.device_memory && rows <= kMostRowsBeside) commands_.BeginBeside();
  }
  void EndBeside() override { commands_.EndBeside(); }
  void Embed(const WeightMatrix& table, std::span<const int32_t> ids, FloatView out) override {
    Staging s = Begin();
    if (options_.device_memory) {
      s.Launch(&cuda::Embed, s.Weight(table), s.Array(ids), s.Out(out));
      s.End();
      return;
    }
    // A table of host memory may be activations: the rows are taken from it as they are now.
    const int64_t row_bytes = table.row_bytes();
    gathered_.clear();
    owners_.clear();
    for (const int32_t id : ids) {
      owners_.push_back(static_cast<int32_t>(std::ssize(owners_)));
      gathered_.insert(gathered_.end(), table.data + id * row_bytes, table.data + (id + 1) * row_bytes);
    }
    uint8_t* values = s.Room<uint8_t>(std::ssize(gathered_));
    s.CopyIn(values, gathered_.data(), std::ssize(gathered_));
    WeightMatrix rows = table;
    rows.rows = std::ssize(ids);
    rows.data = values;
    s.Launch(&cuda::Embed, rows, s.Array(std::span<const int32_t>(owners_)), s.Out(out));
    s.End();
  }

  void Linear(ConstFloatView x, const WeightMatrix& weight, ActivationFormat activation, int groups,
              FloatView out) override {
    Staging s = Begin();
    cuda::DeviceLinear(s, options_.products, s.In(x), s.Weight(weight), activation, groups, s.Out(out));
    s.End();
  }

  void LinearPair(ConstFloatView x, const WeightMatrix& first, const WeightMatrix& second, ActivationFormat activation,
                  FloatView first_out, FloatView second_out) override {
    Staging s = Begin();
    cuda::DeviceLinearPair(s, options_.products, s.In(x), s.Weight(first), s.Weight(second), activation,
                           s.Out(first_out), s.Out(second_out));
    s.End();
  }

  void RmsNorm(ConstFloatView x, const WeightVector& weight, float eps, FloatView out) override {
    Staging s = Begin();
    const FloatView result = s.Out(out);
    s.Launch(&cuda::RmsNorm, s.In(x), s.Vector(weight), eps, result, s.Forms(result));
    s.End();
  }

  void RopeTable(std::span<const int64_t> positions, std::span<const float> frequencies, FloatView cos_sin) override {
    Staging s = Begin();
    s.Launch(&cuda::RopeTable, s.Array(positions), s.Array(frequencies), s.Out(cos_sin));
    s.End();
  }

  void Rope(FloatView x, int heads, ConstFloatView cos_sin, bool inverse) override {
    Staging s = Begin();
    const FloatView rotated = s.InOut(x);
    cuda::DeviceRope(s, rotated, heads, s.In(cos_sin), inverse);
    s.End();
  }

  void MixStreams(ConstFloatView streams, int n, const WeightMatrix& fn, const WeightVector& base,
                  const WeightVector& scale, int sinkhorn_iterations, float hc_eps, float rms_eps,
                  FloatView out) override {
    Staging s = Begin();
    mix_.Mix(s, streams, n, {fn, base, scale, sinkhorn_iterations, hc_eps, rms_eps}, out);
    s.End();
  }

  void CollapseNorm(ConstFloatView streams, int n, ConstFloatView pre, const WeightVector& weight, float eps,
                    FloatView normed, FloatView collapsed) override {
    Staging s = Begin();
    const FloatView result = s.Out(normed);
    s.Launch(&cuda::CollapseNorm, s.In(streams), n, s.In(pre), s.Vector(weight), eps, result, s.Out(collapsed),
             s.Forms(result));
    s.End();
  }

  void MixAndCollapse(ConstFloatView streams, int n, const WeightMatrix& fn, const WeightVector& base,
                      const WeightVector& scale, int sinkhorn_iterations, float hc_eps, float rms_eps, FloatView mix,
                      ConstFloatView pre, const WeightVector& norm, FloatView normed) override {
    if (streams.rows > kFewRows) {
      return Ops::MixAndCollapse(streams, n, fn, base, scale, sinkhorn_iterations, hc_eps, rms_eps, mix, pre, norm,
                                 normed);
    }
    Staging s = Begin();
    mix_.MixAndCollapse(s, streams, n, {fn, base, scale, sinkhorn_iterations, hc_eps, rms_eps}, mix, pre, norm, normed);
    s.End();
  }

  void SpreadStreams(ConstFloatView y, ConstFloatView mix, int n, FloatView streams) override {
    Staging s = Begin();
    s.Launch(&cuda::SpreadStreams, s.In(y), s.In(mix), n, s.InOut(streams));
    s.End();
  }

  void MeanStreams(ConstFloatView streams, int n, FloatView out) override {
    Staging s = Begin();
    s.Launch(&cuda::MeanStreams, s.In(streams), n, s.Out(out));
    s.End();
  }

  void StoreRows(ConstFloatView x, const PackedRows& rows, std::span<const int64_t> destination) override {
    if (x.rows == 0) return;
    Staging s = Begin();
    if (s.OnDevice(rows.pages[0])) {
      ListPlaces(rows, destination, &places_);
      s.Launch(&cuda::StoreRows, s.In(x), rows.format, s.Array(std::span<const cuda::RowPlace>(places_)));
      s.End();
      return;
    }
    // Packed one behind the other, then row by row to their places.
    const RowBytes bytes = PackedRowBytes(rows.format, rows.channels);
    std::vector<uint8_t> page(static_cast<size_t>(x.rows * bytes.total()));
    uint8_t* device_page = s.InOutArray(page.data(), static_cast<int64_t>(page.size()));
    places_.clear();
    for (int64_t t = 0; t < x.rows; ++t) {
      places_.push_back({device_page + t * bytes.values, device_page + x.rows * bytes.values + t * bytes.scales});
    }
    s.Launch(&cuda::StoreRows, s.In(x), rows.format, s.Array(std::span<const cuda::RowPlace>(places_)));
    s.End();
    const uint8_t* scales = page.data() + x.rows * bytes.values;
    for (int64_t t = 0; t < x.rows; ++t) {
      const int64_t row = destination[static_cast<size_t>(t)];
      std::memcpy(rows.values(row), page.data() + t * bytes.values, static_cast<size_t>(bytes.values));
      std::memcpy(rows.scales(row), scales + t * bytes.scales, static_cast<size_t>(bytes.scales));
    }
  }

  void FinishQueriesAndKeys(FloatView queries, int heads, FloatView kv, const WeightVector& kv_norm, float eps,
                            ConstFloatView cos_sin, const PackedRows& rows,
                            std::span<const int64_t> destination) override {
    if (kv.rows == 0) return;
    if (!ranges_.Contains(rows.pages[0])) {
      return Ops::FinishQueriesAndKeys(queries, heads, kv, kv_norm, eps, cos_sin, rows, destination);
    }
    Staging s = Begin();
    ListPlaces(rows, destination, &places_);
    s.Launch(&cuda::FinishQueriesAndKeys, s.InOut(queries), heads, s.InOut(kv), s.Vector(kv_norm), eps, s.In(cos_sin),
             rows.format, s.Array(std::span<const cuda::RowPlace>(places_)));
    s.End();
  }

  void CopyRows(const PackedRows& from, std::span<const int64_t> source, const PackedRows& to,
                std::span<const int64_t> destination) override {
    if (source.empty()) return;
    if (!ranges_.Contains(to.pages[0])) return host_->CopyRows(from, source, to, destination);
    Staging s = Begin();
    ListPlaces(from, source, &places_);
    const cuda::RowPlace* sources = s.Array(std::span<const cuda::RowPlace>(places_));
    ListPlaces(to, destination, &places_);
    s.Launch(&cuda::CopyRows, sources, s.Array(std::span<const cuda::RowPlace>(places_)), std::ssize(source),
             PackedRowBytes(from.format, from.channels));
    s.End();
  }

  void CopyFloats(std::span<const float* const> from, int64_t columns, std::span<float* const> to) override {
    if (from.empty()) return;
    if (!ranges_.Contains(to[0])) return host_->CopyFloats(from, columns, to);
    Staging s = Begin();
    for (float* row : to) {
      prepared_.Forget({row, 1, columns, columns});
      commands_.WillWrite(row, columns * 4);
    }
    for (const float* row : from) commands_.WillRead(row, columns * 4);
    s.Launch(&cuda::CopyFloats, s.Array(from), std::ssize(from), columns, s.Array(to));
    s.End();
  }

  void KeepRows(std::span<const int32_t> rows, FloatView x) override {
    if (!ranges_.Contains(x.data)) return host_->KeepRows(rows, x);
    Staging s = Begin();
    s.Launch(&cuda::KeepRows, s.Array(rows), std::ssize(rows), s.InOut(x));
    s.End();
  }

  void PoolPairs(std::span<const float* const> first, std::span<const float* const> second, FloatView out) override {
    if (first.empty()) return;
    if (!ranges_.Contains(out.data)) return host_->PoolPairs(first, second, out);
    Staging s = Begin();
    s.Launch(&cuda::PoolPairs, s.Array(first), s.Array(second), s.Out(out));
    s.End();
  }

  void Attention(ConstFloatView q, int heads, std::span<const AttentionSequence> sequences, int window,
                 const SelectedRows& selected, const WeightVector& sink, float scale, FloatView out) override {
    if (q.rows == 0) return;
    Staging s = Begin();
    cuda::DeviceAttention(s, options_.products, attention_, q, heads, sequences, window, selected, sink, scale, {},
                          out);
    s.End();
  }

  void AttentionRotatedBack(ConstFloatView q, int heads, std::span<const AttentionSequence> sequences, int window,
                            const SelectedRows& selected, const WeightVector& sink, float scale, ConstFloatView cos_sin,
                            FloatView out) override {
    if (q.rows == 0) return;
    Staging s = Begin();
    cuda::DeviceAttention(s, options_.products, attention_, q, heads, sequences, window, selected, sink, scale, cos_sin,
                          out);
    s.End();
  }

  void SelectRows(ConstFloatView q, ConstFloatView head_weights, std::span<const IndexSequence> sequences,
                  const IndexSettings& settings, const CandidateBlocks& candidates,
                  const SelectedRows& selected) override {
    if (q.rows == 0) return;
    Staging s = Begin();
    index_sequences_.clear();
    int64_t most_visible = 0;
    for (const IndexSequence& sequence : sequences) {
      const int64_t visible = (sequence.first_position + sequence.row_count) / settings.ratio;
      cuda::DeviceIndexSequence& copy = index_sequences_.emplace_back();
      copy = {sequence.first_row, sequence.row_count, sequence.first_position, PackedRows()};
      if (sequence.row_count == 0) continue;
      copy.keys = s.Rows(sequence.keys, visible);
      most_visible = std::max(most_visible, visible);
    }
    most_visible = (most_visible + kVisibleStep - 1) / kVisibleStep * kVisibleStep;
    cuda::IndexArguments arguments{settings.heads,
                                   settings.head_width,
                                   settings.ratio,
                                   settings.topk,
                                   settings.block_size,
                                   settings.topk_blocks,
                                   settings.publish_candidates,
                                   settings.restrict_to_candidates};
    cuda::DeviceLists blocks;
    if (settings.publish_candidates || settings.restrict_to_candidates) {
      blocks.stride = candidates.blocks.stride;
      blocks.rows = s.InOutArray(candidates.blocks.data, cuda::ListSpan(candidates.blocks));
      blocks.counts = s.InOutArray(candidates.counts, q.rows);
    }
    // What the op does not write keeps its value.
    cuda::DeviceLists lists;
    lists.stride = selected.rows.stride;
    lists.rows = s.InOutArray(selected.rows.data, cuda::ListSpan(selected.rows));
    lists.counts = s.InOutArray(selected.counts, q.rows);

    cuda::ListOwners(sequences, q.rows, &owners_);
    const int32_t* device_owners = s.Array(std::span<const int32_t>(owners_));
    const auto* device_sequences = s.Array(std::span<const cuda::DeviceIndexSequence>(index_sequences_));
    const ConstFloatView device_q = s.In(q);
    const ConstFloatView device_weights = s.In(head_weights);
    if (cuda::SelectInPartsFits(arguments)) {
      uint8_t* scratch = s.Room<uint8_t>(cuda::SelectInPartsScratchBytes(q.rows, arguments, most_visible));
      s.Launch(&cuda::SelectInParts, device_q, device_weights, device_sequences, device_owners, arguments, blocks,
               lists, most_visible, static_cast<void*>(scratch));
      s.End();
      return;
    }
    // The workspace is bounded: a few rows at a time.
    const int64_t rows_at_once = std::min(kRowsOfScores, q.rows);
    const int64_t blocks_of_row =
        settings.block_size > 0 ? (most_visible + settings.block_size - 1) / settings.block_size : 0;
    float* scores = s.Room<float>(rows_at_once * most_visible);
    float* block_scores = s.Room<float>(rows_at_once * blocks_of_row);
    for (int64_t first = 0; s.ok() && first < q.rows; first += rows_at_once) {
      s.Launch(&cuda::SelectRows, device_q, device_weights, device_sequences, device_owners, first,
               std::min(rows_at_once, q.rows - first), arguments, blocks, lists, scores, most_visible, block_scores);
    }
    s.End();
  }

  void Route(ConstFloatView x, const WeightMatrix& gate, const WeightVector& bias, bool normalise, float scaling,
             TensorView<int32_t> picks, FloatView weights) override {
    if (x.rows == 0) return;
    Staging s = Begin();
    const FloatView logits = s.Temporary(x.rows, gate.rows);
    cuda::DeviceLinear(s, options_.products, s.In(x), s.Weight(gate), ActivationFormat::kExact, 1, logits);
    s.Launch(&cuda::FinishRoute, logits, s.Vector(bias), normalise, scaling,
             s.InOutArray(picks.data, cuda::ListSpan(picks)), picks.stride, static_cast<int>(picks.columns),
             s.Out(weights));
    s.End();
  }

  void Experts(ConstFloatView x, TensorView<const int32_t> picks, ConstFloatView weights,
               std::span<const ExpertWeights> experts, float limit, ActivationFormat activation,
               FloatView out) override {
    if (x.rows == 0) return;
    if (options_.products == CudaProducts::kTensorCores && cuda::TakesTensorExperts(experts, activation)) {
      const int64_t at_once = cuda::MostTensorExpertRows(picks.columns);
      for (int64_t first = 0; first < x.rows; first += at_once) {
        const int64_t end = std::min(x.rows, first + at_once);
        Staging s = Begin();
        cuda::RunTensorExperts(s, s.In(x.RowRange(first, end)), picks.RowRange(first, end),
                               weights.RowRange(first, end), experts, limit, s.Out(out.RowRange(first, end)));
        s.End();
      }
      return;
    }
    // The canonical form reads the routing on the host.
    if (ranges_.Contains(picks.data)) {
      host_picks_.resize(static_cast<size_t>(cuda::ListSpan(picks)));
      CopyOut(picks.data, host_picks_.data(), std::ssize(host_picks_) * 4);
      picks.data = host_picks_.data();
      weights = OnHost(weights);
    }
    Staging s = Begin();
    const cuda::Routing routing = cuda::SortByExpert(picks, weights, static_cast<int64_t>(experts.size()));
    cuda::RunExperts(s, options_.products, s.In(x), routing, experts, limit, activation, s.Out(out));
    s.End();
  }

  void ExpertsAndSpread(ConstFloatView x, TensorView<const int32_t> picks, ConstFloatView weights,
                        std::span<const ExpertWeights> experts, float limit, ActivationFormat activation,
                        ConstFloatView shared, FloatView out, ConstFloatView mix, int n, FloatView streams) override {
    if (x.rows == 0) return;
    if (x.rows > kFewRows || options_.products != CudaProducts::kTensorCores ||
        !cuda::TakesTensorExperts(experts, activation)) {
      return Ops::ExpertsAndSpread(x, picks, weights, experts, limit, activation, shared, out, mix, n, streams);
    }
    Staging s = Begin();
    cuda::RunTensorExperts(s, s.In(x), picks, weights, experts, limit, s.Out(out), {shared, mix, n, streams});
    s.End();
  }

  void SwiGlu(ConstFloatView gate, ConstFloatView up, float limit, FloatView hidden) override {
    Staging s = Begin();
    const FloatView result = s.Out(hidden);
    s.Launch(&cuda::SwiGlu, s.In(gate), s.In(up), limit, result, s.Forms(result));
    s.End();
  }

  void Scale(float factor, FloatView x) override {
    Staging s = Begin();
    s.Launch(&cuda::Scale, factor, s.InOut(x));
    s.End();
  }

  void Add(ConstFloatView y, FloatView out) override {
    Staging s = Begin();
    s.Launch(&cuda::Add, s.In(y), s.InOut(out));
    s.End();
  }

  void GatherRows(const WeightMatrix& table, TensorView<const int64_t> rows, FloatView out) override {
    Staging s = Begin();
    if (s.Holds(table)) {
      cuda::GatherHeldRows(s, table, rows, gathered_, s.Out(out));
    } else {
      cuda::GatherHostRows(s, table, rows, gathered_, s.Out(out));
    }
    s.End();
  }

  void EngramInject(ConstFloatView kv, const WeightVector& q_weight, const WeightVector& k_weight, int n, float eps,
                    FloatView streams) override {
    Staging s = Begin();
    s.Launch(&cuda::EngramInject, s.In(kv), s.Vector(q_weight), s.Vector(k_weight), n, eps, s.InOut(streams));
    s.End();
  }

  void ChooseTokens(ConstFloatView logits, std::span<const TokenRule> rules, std::span<TokenChoice> choices) override {
    if (!ranges_.Contains(logits.data) && options_.device_memory) return host_->ChooseTokens(logits, rules, choices);
    Staging s = Begin();
    (void)chooser_.Choose(s, s.In(logits), rules, choices);  // the ids are -1 after an error
  }
  void AcceptDrafts(std::span<const DraftCheck> checks, std::span<DraftVerdict> verdicts) override {
    for (size_t i = 0; i < checks.size(); ++i) {
      DraftCheck check = checks[i];
      check.target_logits = OnHost(check.target_logits);
      host_->AcceptDrafts({&check, 1}, verdicts.subspan(i, 1));
    }
  }

 private:
  // The scores of SelectRows grow with the context, and the steps before the first request have none of the longest.
  Status ReserveIndexScores(const ScratchLimits& limits) {
    constexpr int64_t kBytesOfKey = 6;  // its score, and its share of the best of a part and of the blocks' scores
    if (!options_.device_memory || limits.index_rows == 0) return Status::Ok();
    UseDevice();
    const int64_t bytes = std::min(kRowsOfScores, limits.rows) * (limits.index_rows + kVisibleStep) * kBytesOfKey;
    const bool taken = arena_.Take(static_cast<size_t>(bytes)) != nullptr;
    arena_.Reset();
    CountTemporaries();
    return taken ? Status::Ok()
                 : Status::ResourceExhausted("the GPU has no " + std::to_string(bytes) +
                                             " bytes for index scores of the longest context; lower max_model_len");
  }
  void CountTemporaries() {
    temporary_bytes_.store(arena_.bytes() + beside_arena_.bytes() + mix_.bytes() + prepared_.bytes(),
                           std::memory_order_relaxed);
  }

  // The current device belongs to the thread.
  void UseDevice() const { (void)cudaSetDevice(options_.device); }  // an error shows in what follows
  Staging Begin() {
    UseDevice();
    if (waits_ != commands_.waits()) {
      waits_ = commands_.waits();
      prepared_.BeginStep();
    }
    CountTemporaries();
    return Staging(commands_, commands_.beside() ? beside_arena_ : arena_, options_.keep_weights ? &store_ : nullptr,
                   prepared_, ranges_);
  }

  static void ListPlaces(const PackedRows& rows, std::span<const int64_t> numbers,
                         std::vector<cuda::RowPlace>* places) {
    places->clear();
    for (const int64_t row : numbers) places->push_back({rows.values(row), rows.scales(row)});
  }

  // Rows of logits in host memory, valid until the next call.
  ConstFloatView OnHost(ConstFloatView view) {
    if (!ranges_.Contains(view.data)) return view;
    host_rows_.resize(static_cast<size_t>(cuda::ListSpan(view)));
    CopyOut(view.data, host_rows_.data(), std::ssize(host_rows_) * static_cast<int64_t>(sizeof(float)));
    view.data = host_rows_.data();
    return view;
  }

  CudaOptions options_;
  std::string name_;
  std::string numerics_;
  cudaStream_t stream_;
  cuda::CommandList commands_;
  cuda::DeviceRanges ranges_;
  std::unique_ptr<Ops> host_;  // AcceptDrafts, and copies between host rows
  cuda::DeviceArena arena_;
  cuda::DeviceArena beside_arena_{int64_t{1} << 20};  // of ops beside the others
  cuda::WeightStore store_;
  cuda::PreparedRows prepared_;
  cuda::DeviceMix mix_;
  cuda::TokenChooser chooser_;
  int64_t waits_ = 0;  // of commands_, when the step began
  std::atomic<int64_t> temporary_bytes_{0};
  std::vector<int32_t> owners_;  // lists of one op
  std::vector<cuda::RowPlace> places_;
  cuda::AttentionLists attention_;
  std::vector<cuda::DeviceIndexSequence> index_sequences_;
  std::vector<uint8_t> gathered_;
  std::vector<float> host_rows_;
  std::vector<int32_t> host_picks_;
};

}  // namespace

Result<std::unique_ptr<Ops>> MakeCudaOps(const CudaOptions& options) {
  if (options.device < 0 || !IsUsableCudaDevice(options.device)) {
    return Status::NotFound("there is no GPU number " + std::to_string(options.device) +
                            " with compute capability 9 or 10; `deepinfer doctor` lists what there is");
  }
  cudaDeviceProp properties;
  cudaStream_t stream = nullptr;
  cudaError_t error = cudaSetDevice(options.device);
  if (error == cudaSuccess) error = cudaGetDeviceProperties(&properties, options.device);
  // Before what runs beside it (CommandList).
  int greatest = 0;
  if (error == cudaSuccess) error = cudaDeviceGetStreamPriorityRange(nullptr, &greatest);
  if (error == cudaSuccess) error = cudaStreamCreateWithPriority(&stream, cudaStreamNonBlocking, greatest);
  if (error != cudaSuccess) {
    return Status::Internal(std::string("the GPU cannot be used: ") + cudaGetErrorString(error));
  }
  const bool canonical = options.products == CudaProducts::kCanonical;
  std::string name = std::string("cuda (") + properties.name + (canonical ? ", canonical order)" : ")");
  std::string numerics = CudaNumerics(properties.major, properties.minor, options.products);
  auto ops = std::make_unique<CudaOps>(options, std::move(name), std::move(numerics), stream);
  DEEPINFER_RETURN_IF_ERROR(ops->Create());
  return std::unique_ptr<Ops>(std::move(ops));
}

}  // namespace deepinfer
