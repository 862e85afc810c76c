#include "ops/cuda/cuda_ops.h"

#include <cuda_runtime_api.h>

#include <algorithm>
#include <cstring>
#include <numeric>
#include <string>
#include <vector>

#include "ops/cuda/kernels.h"
#include "ops/cuda/routing.h"
#include "ops/cuda/skinny.h"
#include "ops/cuda/staging.h"

namespace deepinfer {
namespace {

using cuda::Staging;

constexpr int kLeastMajor = 9;

// The sequence of every row.
template <typename Sequence>
std::vector<int32_t> RowSequences(std::span<const Sequence> sequences, int64_t rows) {
  std::vector<int32_t> owner(static_cast<size_t>(rows), 0);
  for (size_t s = 0; s < sequences.size(); ++s) {
    std::fill_n(owner.begin() + sequences[s].first_row, sequences[s].row_count, static_cast<int32_t>(s));
  }
  return owner;
}

class CudaOps final : public Ops {
 public:
  CudaOps(const CudaOptions& options, std::string name, cudaStream_t stream)
      : options_(options), name_(std::move(name)), stream_(stream), host_(MakeCpuOps(1)) {}
  ~CudaOps() override { cudaStreamDestroy(stream_); }

  std::string_view name() const override { return name_; }
  Status Reserve(const ScratchLimits& limits) override {
    DEEPINFER_RETURN_IF_ERROR(status_);
    return host_->Reserve(limits);
  }
  int64_t scratch_bytes() const override { return host_->scratch_bytes() + arena_.bytes(); }

  void Embed(const WeightMatrix& table, std::span<const int32_t> ids, FloatView out) override {
    Staging s = Begin();
    const std::vector<int64_t> rows(ids.begin(), ids.end());
    std::vector<int32_t> places(ids.size());
    std::iota(places.begin(), places.end(), 0);
    cuda::Embed(stream_, s.SomeRows(table, rows), s.Array(std::span<const int32_t>(places)), s.Out(out));
    End(s);
  }

  void Linear(ConstFloatView x, const WeightMatrix& weight, ActivationFormat activation, int groups,
              FloatView out) override {
    Staging s = Begin();
    DeviceLinear(s, s.In(x), s.Weight(weight), activation, groups, s.Out(out));
    End(s);
  }

  void RmsNorm(ConstFloatView x, const WeightVector& weight, float eps, FloatView out) override {
    Staging s = Begin();
    cuda::RmsNorm(stream_, s.In(x), s.Vector(weight), eps, s.Out(out));
    End(s);
  }

  void RopeTable(std::span<const int64_t> positions, std::span<const float> frequencies, FloatView cos_sin) override {
    Staging s = Begin();
    cuda::RopeTable(stream_, s.Array(positions), s.Array(frequencies), s.Out(cos_sin));
    End(s);
  }

  void Rope(FloatView x, int heads, ConstFloatView cos_sin, bool inverse) override {
    Staging s = Begin();
    cuda::Rope(stream_, s.InOut(x), heads, s.In(cos_sin), inverse);
    End(s);
  }

  void MixStreams(ConstFloatView streams, int n, const WeightMatrix& fn, const WeightVector& base,
                  const WeightVector& scale, int sinkhorn_iterations, float hc_eps, float rms_eps,
                  FloatView out) override {
    Staging s = Begin();
    const ConstFloatView x = s.In(streams);
    const FloatView mix = s.Out(out);
    cuda::CanonicalLinear(stream_, x, s.Weight(fn), 1, mix);
    cuda::FinishMix(stream_, x, n, s.Vector(base), s.Vector(scale), sinkhorn_iterations, hc_eps, rms_eps, mix);
    End(s);
  }

  void CollapseNorm(ConstFloatView streams, int n, ConstFloatView pre, const WeightVector& weight, float eps,
                    FloatView normed, FloatView collapsed) override {
    Staging s = Begin();
    cuda::CollapseNorm(stream_, s.In(streams), n, s.In(pre), s.Vector(weight), eps, s.Out(normed), s.Out(collapsed));
    End(s);
  }

  void SpreadStreams(ConstFloatView y, ConstFloatView mix, int n, FloatView streams) override {
    Staging s = Begin();
    cuda::SpreadStreams(stream_, s.In(y), s.In(mix), n, s.InOut(streams));
    End(s);
  }

  void MeanStreams(ConstFloatView streams, int n, FloatView out) override {
    Staging s = Begin();
    cuda::MeanStreams(stream_, s.In(streams), n, s.Out(out));
    End(s);
  }

  void StoreRows(ConstFloatView x, const PackedRows& rows, std::span<const int64_t> destination) override {
    if (x.rows == 0) return;
    Staging s = Begin();
    // Packed into one page of the step's rows, then row by row to their places.
    const RowBytes bytes = PackedRowBytes(rows.format, rows.channels);
    std::vector<uint8_t> page(static_cast<size_t>(x.rows * bytes.total()));
    uint8_t* device_page = s.OutArray(page.data(), static_cast<int64_t>(page.size()));
    PackedRows packed = rows;
    packed.rows_per_page = static_cast<int32_t>(x.rows);
    packed.pages = s.Array(std::span<uint8_t* const>(&device_page, 1));
    std::vector<int64_t> places(static_cast<size_t>(x.rows));
    std::iota(places.begin(), places.end(), 0);
    cuda::StoreRows(stream_, s.In(x), packed, s.Array(std::span<const int64_t>(places)));
    End(s);
    const uint8_t* scales = page.data() + x.rows * bytes.values;
    for (int64_t t = 0; t < x.rows; ++t) {
      const int64_t row = destination[static_cast<size_t>(t)];
      std::memcpy(rows.values(row), page.data() + t * bytes.values, static_cast<size_t>(bytes.values));
      std::memcpy(rows.scales(row), scales + t * bytes.scales, static_cast<size_t>(bytes.scales));
    }
  }

  void CopyRows(const PackedRows& from, std::span<const int64_t> source, const PackedRows& to,
                std::span<const int64_t> destination) override {
    host_->CopyRows(from, source, to, destination);
  }
  void KeepRows(std::span<const int32_t> rows, FloatView x) override { host_->KeepRows(rows, x); }
  void PoolPairs(std::span<const float* const> first, std::span<const float* const> second, FloatView out) override {
    host_->PoolPairs(first, second, out);
  }

  void Attention(ConstFloatView q, int heads, std::span<const AttentionSequence> sequences, int window,
                 const SelectedRows& selected, const WeightVector& sink, float scale, FloatView out) override {
    if (q.rows == 0) return;
    Staging s = Begin();
    cuda::DeviceLists lists;
    std::vector<cuda::DeviceSequence> device;
    int64_t most_keys = 0;
    for (const AttentionSequence& sequence : sequences) {
      int64_t compressed = 0;
      for (int64_t t = sequence.first_row; t < sequence.first_row + sequence.row_count; ++t) {
        const int64_t count = selected.counts == nullptr ? 0 : selected.counts[t];
        if (count > 0) compressed = std::max<int64_t>(compressed, selected.rows.row(t)[count - 1] + 1);
        most_keys = std::max(most_keys, count);
      }
      cuda::DeviceSequence copy{sequence.first_row,    sequence.row_count,  sequence.first_position,
                                PackedRows(),          PackedRows(),        PackedRows(),
                                sequence.window_start, sequence.ring_slots, sequence.whole_block};
      if (sequence.row_count > 0) {
        if (sequence.first_position > 0 && sequence.ring_slots > 0) {
          copy.ring = s.Rows(sequence.ring, std::min<int64_t>(sequence.ring_slots, sequence.first_position));
        }
        copy.fresh = s.Rows(sequence.fresh, sequence.row_count);
        if (compressed > 0) copy.compressed = s.Rows(sequence.compressed, compressed);
      }
      most_keys = std::max<int64_t>(most_keys, 0);
      device.push_back(copy);
    }
    int64_t longest_block = 0;
    for (const AttentionSequence& sequence : sequences) {
      if (sequence.whole_block) longest_block = std::max<int64_t>(longest_block, sequence.row_count);
    }
    most_keys += window + longest_block;
    if (selected.counts != nullptr) {
      lists.stride = selected.rows.stride;
      lists.rows = s.Array(std::span<const int32_t>(selected.rows.data, ListSpan(selected.rows)));
      lists.counts = s.Array(std::span<const int32_t>(selected.counts, static_cast<size_t>(q.rows)));
    }
    const std::vector<int32_t> owner = RowSequences(sequences, q.rows);
    cuda::Attention(stream_, s.In(q), heads, s.Array(std::span<const cuda::DeviceSequence>(device)),
                    s.Array(std::span<const int32_t>(owner)), window, lists, s.Vector(sink), scale,
                    static_cast<int>(most_keys), s.Out(out));
    End(s);
  }

  void SelectRows(ConstFloatView q, ConstFloatView head_weights, std::span<const IndexSequence> sequences,
                  const IndexSettings& settings, const CandidateBlocks& candidates,
                  const SelectedRows& selected) override {
    if (q.rows == 0) return;
    Staging s = Begin();
    std::vector<cuda::DeviceIndexSequence> device;
    int64_t most_visible = 0;
    for (const IndexSequence& sequence : sequences) {
      const int64_t visible = (sequence.first_position + sequence.row_count) / settings.ratio;
      cuda::DeviceIndexSequence copy{sequence.first_row, sequence.row_count, sequence.first_position, PackedRows()};
      if (sequence.row_count > 0) copy.keys = s.Rows(sequence.keys, visible);
      if (sequence.row_count > 0) most_visible = std::max(most_visible, visible);
      device.push_back(copy);
    }
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
      const int64_t span = static_cast<int64_t>(ListSpan(candidates.blocks));
      blocks.stride = candidates.blocks.stride;
      blocks.rows = s.Array(std::span<const int32_t>(candidates.blocks.data, static_cast<size_t>(span)));
      blocks.counts = s.Array(std::span<const int32_t>(candidates.counts, static_cast<size_t>(q.rows)));
      if (settings.publish_candidates) {
        s.CopyBack(candidates.blocks.data, blocks.rows, span * 4);
        s.CopyBack(candidates.counts, blocks.counts, q.rows * 4);
      }
    }
    // What the op does not write keeps its value.
    const int64_t span = static_cast<int64_t>(ListSpan(selected.rows));
    cuda::DeviceLists lists;
    lists.stride = selected.rows.stride;
    lists.rows = s.Array(std::span<const int32_t>(selected.rows.data, static_cast<size_t>(span)));
    lists.counts = s.Array(std::span<const int32_t>(selected.counts, static_cast<size_t>(q.rows)));
    s.CopyBack(selected.rows.data, lists.rows, span * 4);
    s.CopyBack(selected.counts, lists.counts, q.rows * 4);

    const std::vector<int32_t> owner = RowSequences(sequences, q.rows);
    const int32_t* device_owner = s.Array(std::span<const int32_t>(owner));
    const auto* device_sequences = s.Array(std::span<const cuda::DeviceIndexSequence>(device));
    const ConstFloatView device_q = s.In(q);
    const ConstFloatView device_weights = s.In(head_weights);
    // The workspace is bounded: a few rows at a time.
    constexpr int64_t kRowsAtOnce = 64;
    const int64_t rows_at_once = std::min(kRowsAtOnce, q.rows);
    const int64_t blocks_of_row =
        settings.block_size > 0 ? (most_visible + settings.block_size - 1) / settings.block_size : 0;
    float* scores = s.Room<float>(rows_at_once * most_visible);
    float* block_scores = s.Room<float>(rows_at_once * blocks_of_row);
    for (int64_t first = 0; s.ok() && first < q.rows; first += rows_at_once) {
      cuda::SelectRows(stream_, device_q, device_weights, device_sequences, device_owner, first,
                       std::min(rows_at_once, q.rows - first), arguments, blocks, lists, scores, most_visible,
                       block_scores);
    }
    End(s);
  }

  void Route(ConstFloatView x, const WeightMatrix& gate, const WeightVector& bias, bool normalise, float scaling,
             TensorView<int32_t> picks, FloatView weights) override {
    if (x.rows == 0) return;
    Staging s = Begin();
    const FloatView logits = s.Temporary(x.rows, gate.rows);
    cuda::CanonicalLinear(stream_, s.In(x), s.Weight(gate), 1, logits);
    std::vector<int32_t> dense(static_cast<size_t>(picks.rows * picks.columns));
    int32_t* device_picks = s.OutArray(dense.data(), static_cast<int64_t>(dense.size()));
    cuda::FinishRoute(stream_, logits, s.Vector(bias), normalise, scaling, device_picks,
                      static_cast<int>(picks.columns), s.Out(weights));
    End(s);
    for (int64_t t = 0; t < picks.rows; ++t) {
      std::copy_n(dense.begin() + t * picks.columns, picks.columns, picks.row(t));
    }
  }

  void Experts(ConstFloatView x, TensorView<const int32_t> picks, ConstFloatView weights,
               std::span<const ExpertWeights> experts, float limit, ActivationFormat activation,
               FloatView out) override {
    if (x.rows == 0) return;
    Staging s = Begin();
    const ConstFloatView input = s.In(x);
    const FloatView output = s.Out(out);
    const cuda::Routing routing = cuda::SortByExpert(picks, weights, static_cast<int64_t>(experts.size()));
    if (TakesTensorCores(experts, routing, activation)) {
      RunTensorExperts(s, input, routing, experts, limit, output);
    } else {
      RunCanonicalExperts(s, input, routing, experts, limit, activation, output);
    }
    End(s);
  }

  void SwiGlu(ConstFloatView gate, ConstFloatView up, float limit, FloatView hidden) override {
    Staging s = Begin();
    cuda::SwiGlu(stream_, s.In(gate), s.In(up), limit, s.Out(hidden));
    End(s);
  }

  void Add(ConstFloatView y, FloatView out) override {
    Staging s = Begin();
    cuda::Add(stream_, s.In(y), s.InOut(out));
    End(s);
  }

  void GatherRows(const WeightMatrix& table, TensorView<const int64_t> rows, FloatView out) override {
    Staging s = Begin();
    std::vector<int64_t> wanted;
    for (int64_t t = 0; t < rows.rows; ++t) wanted.insert(wanted.end(), rows.row(t), rows.row(t) + rows.columns);
    std::vector<int64_t> places(wanted.size());
    std::iota(places.begin(), places.end(), 0);
    cuda::GatherTableRows(stream_, s.SomeRows(table, wanted), s.Array(std::span<const int64_t>(places)), rows.columns,
                          s.Out(out));
    End(s);
  }

  void EngramInject(ConstFloatView kv, const WeightVector& q_weight, const WeightVector& k_weight, int n, float eps,
                    FloatView streams) override {
    Staging s = Begin();
    cuda::EngramInject(stream_, s.In(kv), s.Vector(q_weight), s.Vector(k_weight), n, eps, s.InOut(streams));
    End(s);
  }

  void ChooseTokens(ConstFloatView logits, std::span<const TokenRule> rules, std::span<TokenChoice> choices) override {
    host_->ChooseTokens(logits, rules, choices);
  }
  void AcceptDrafts(std::span<const DraftCheck> checks, std::span<DraftVerdict> verdicts) override {
    host_->AcceptDrafts(checks, verdicts);
  }

 private:
  Staging Begin() { return Staging(stream_, arena_, options_.keep_weights ? &store_ : nullptr); }
  void End(Staging& staging) {
    const Status status = staging.Finish();
    if (status_.ok()) status_ = status;
  }

  // Elements from the first to the last of a list table.
  static size_t ListSpan(const TensorView<int32_t>& lists) {
    return lists.rows == 0 ? 0 : static_cast<size_t>((lists.rows - 1) * lists.stride + lists.columns);
  }

  void DeviceLinear(Staging& s, ConstFloatView x, const WeightMatrix& weight, ActivationFormat activation, int groups,
                    FloatView out) {
    if (!s.ok()) return;
    const bool quantised = weight.scale != nullptr && activation == ActivationFormat::kFp8Groups32;
    if (quantised && options_.products == CudaProducts::kTensorCores && cuda::SkinnyFits(weight, groups)) {
      const cuda::Bf16Rows rows = Quantise(s, x, cuda::ColumnOrder::kFp8);
      cuda::SkinnyLinear(stream_, rows, x.rows, weight, groups, out);
      return;
    }
    if (quantised) {
      const FloatView rounded = s.Temporary(x.rows, x.columns);
      cuda::QuantiseActivations(stream_, x, rounded);
      x = rounded;
    }
    cuda::CanonicalLinear(stream_, x, weight, groups, out);
  }

  cuda::Bf16Rows Quantise(Staging& s, ConstFloatView x, cuda::ColumnOrder order) {
    const cuda::Bf16Rows rows{s.Room<uint16_t>(x.rows * x.columns), x.columns};
    if (s.ok()) cuda::QuantiseRows(stream_, x, order, rows);
    return rows;
  }

  bool TakesTensorCores(std::span<const ExpertWeights> experts, const cuda::Routing& routing,
                        ActivationFormat activation) const {
    return options_.products == CudaProducts::kTensorCores && activation == ActivationFormat::kFp8Groups32 &&
           !routing.active.empty() && cuda::SkinnyExpertsFit(experts.front().w1, experts.front().w2);
  }

  void RunTensorExperts(Staging& s, ConstFloatView x, const cuda::Routing& routing,
                        std::span<const ExpertWeights> experts, float limit, FloatView out) {
    const int64_t slots = static_cast<int64_t>(routing.order.size());
    const int64_t inner = experts.front().w1.rows;
    std::vector<cuda::DeviceExpert> device(experts.size());
    for (const int32_t e : routing.active) {
      const ExpertWeights& expert = experts[static_cast<size_t>(e)];
      const WeightMatrix w1 = s.Weight(expert.w1), w2 = s.Weight(expert.w2), w3 = s.Weight(expert.w3);
      device[static_cast<size_t>(e)] = {w1.data, w1.scale, w3.data, w3.scale, w2.data, w2.scale};
    }
    cuda::ExpertsPlan plan;
    plan.experts = s.Array(std::span<const cuda::DeviceExpert>(device));
    plan.active = s.Array(std::span<const int32_t>(routing.active));
    plan.active_count = static_cast<int>(routing.active.size());
    for (const int32_t e : routing.active) {
      const auto offset = routing.offsets.begin() + e;
      plan.most_rows = std::max(plan.most_rows, offset[1] - offset[0]);
    }
    plan.offsets = s.Array(std::span<const int32_t>(routing.offsets));
    plan.order = s.Array(std::span<const int32_t>(routing.order));
    plan.per_token = routing.per_token;
    plan.weights = s.Array(std::span<const float>(routing.weights));
    plan.columns = x.columns;
    plan.inner = inner;
    plan.limit = limit;
    const cuda::Bf16Rows input = Quantise(s, x, cuda::ColumnOrder::kFp4);
    const cuda::Bf16Rows hidden{s.Room<uint16_t>(slots * inner), inner};
    const FloatView parts = s.Temporary(slots, out.columns);
    std::vector<int32_t> identity(static_cast<size_t>(slots));
    std::iota(identity.begin(), identity.end(), 0);
    const int32_t* device_slots = s.Array(std::span<const int32_t>(identity));
    if (!s.ok()) return;
    cuda::SkinnyExperts(stream_, plan, input, hidden, parts);
    cuda::SumParts(stream_, parts, device_slots, routing.per_token, out);
  }

  // One expert after the other on gathered rows.
  void RunCanonicalExperts(Staging& s, ConstFloatView x, const cuda::Routing& routing,
                           std::span<const ExpertWeights> experts, float limit, ActivationFormat activation,
                           FloatView out) {
    const int64_t slots = static_cast<int64_t>(routing.order.size());
    std::vector<int32_t> tokens, places(static_cast<size_t>(slots));
    std::vector<float> weights;
    for (int64_t i = 0; i < slots; ++i) {
      const int32_t slot = routing.order[static_cast<size_t>(i)];
      tokens.push_back(slot / routing.per_token);
      weights.push_back(routing.weights[static_cast<size_t>(slot)]);
      places[static_cast<size_t>(slot)] = static_cast<int32_t>(i);
    }
    const int32_t* device_tokens = s.Array(std::span<const int32_t>(tokens));
    const int32_t* device_places = s.Array(std::span<const int32_t>(places));
    const float* device_weights = s.Array(std::span<const float>(weights));
    const FloatView parts = s.Temporary(slots, out.columns);
    for (const int32_t e : routing.active) {
      const ExpertWeights& expert = experts[static_cast<size_t>(e)];
      const int64_t first = routing.offsets[static_cast<size_t>(e)];
      const int64_t rows = routing.offsets[static_cast<size_t>(e) + 1] - first;
      const FloatView input = s.Temporary(rows, x.columns);
      const FloatView gate = s.Temporary(rows, expert.w1.rows);
      const FloatView up = s.Temporary(rows, expert.w1.rows);
      if (!s.ok()) return;
      cuda::GatherFloatRows(stream_, x, device_tokens + first, input);
      DeviceLinear(s, input, s.Weight(expert.w1), activation, 1, gate);
      DeviceLinear(s, input, s.Weight(expert.w3), activation, 1, up);
      cuda::WeightedSwiGlu(stream_, gate, up, device_weights + first, limit, gate);
      DeviceLinear(s, gate, s.Weight(expert.w2), activation, 1, parts.RowRange(first, first + rows));
    }
    cuda::SumParts(stream_, parts, device_places, routing.per_token, out);
  }

  CudaOptions options_;
  std::string name_;
  cudaStream_t stream_;
  std::unique_ptr<Ops> host_;  // sampling, and copies between host rows
  cuda::DeviceArena arena_;
  cuda::WeightStore store_;
  Status status_;
};

}  // namespace

int CountCudaDevices() {
  int count = 0;
  if (cudaGetDeviceCount(&count) != cudaSuccess) return 0;
  int usable = 0;
  for (int device = 0; device < count; ++device) {
    int major = 0;
    if (cudaDeviceGetAttribute(&major, cudaDevAttrComputeCapabilityMajor, device) == cudaSuccess &&
        major >= kLeastMajor) {
      ++usable;
    }
  }
  return usable;
}

Result<std::unique_ptr<Ops>> MakeCudaOps(const CudaOptions& options) {
  if (options.device < 0 || options.device >= CountCudaDevices()) {
    return Status::NotFound("there is no GPU number " + std::to_string(options.device) +
                            " with compute capability 9.0 or newer; `deepinfer doctor` lists what there is");
  }
  cudaDeviceProp properties;
  cudaStream_t stream = nullptr;
  cudaError_t error = cudaSetDevice(options.device);
  if (error == cudaSuccess) error = cudaGetDeviceProperties(&properties, options.device);
  if (error == cudaSuccess) error = cudaStreamCreateWithFlags(&stream, cudaStreamNonBlocking);
  if (error != cudaSuccess) {
    return Status::Internal(std::string("the GPU cannot be used: ") + cudaGetErrorString(error));
  }
  const bool canonical = options.products == CudaProducts::kCanonical;
  return std::unique_ptr<Ops>(std::make_unique<CudaOps>(
      options, std::string("cuda (") + properties.name + (canonical ? ", canonical order)" : ")"), stream));
}

}  // namespace deepinfer
