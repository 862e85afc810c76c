#include "device_ops.h"

#include <sys/mman.h>

#include <atomic>
#include <cstdio>
#include <cstdlib>
#include <utility>

namespace deepinfer::test {
namespace {

constexpr int64_t kPage = 4096;

void Require(bool holds, const char* what) {
  if (holds) return;
  std::fprintf(stderr, "device ops: %s\n", what);
  std::abort();
}

class DeviceOps final : public Ops {
 public:
  DeviceOps(std::shared_ptr<const std::atomic<bool>> broken, Status error)
      : cpu_(MakeCpuOps(1)), broken_(std::move(broken)), error_(std::move(error)) {
    void* const memory = mmap(nullptr, static_cast<size_t>(kDeviceOpsBytes), PROT_NONE,
                              MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
    Require(memory != MAP_FAILED, "no address space");
    memory_ = static_cast<uint8_t*>(memory);
  }
  ~DeviceOps() override { munmap(memory_, static_cast<size_t>(kDeviceOpsBytes)); }

  std::string_view name() const override { return "device"; }
  std::string_view numerics() const override { return "device"; }
  Status Reserve(const ScratchLimits& limits) override { return cpu_->Reserve(limits); }
  int64_t scratch_bytes() const override { return cpu_->scratch_bytes(); }
  int64_t free_bytes() const override { return kDeviceOpsBytes - used_; }
  bool computes_on_host_memory() const override { return false; }

  Result<DeviceMemory> Allocate(int64_t bytes) override {
    const Driver driver(*this);
    const int64_t whole = (bytes + kPage - 1) / kPage * kPage;
    if (whole > free_bytes()) return Status::ResourceExhausted("the device has no memory left");
    uint8_t* const data = memory_ + used_;
    Close();  // so that all of it has one state
    used_ += whole;
    return DeviceMemory(data, bytes, [](uint8_t*) {});  // given back with the whole
  }
  void CopyIn(const void* host, void* to, int64_t bytes) override {
    const Waits waits(*this);
    Require(OnDevice(to, bytes) && !OnDevice(host, 1), "CopyIn: the wrong way");
    cpu_->CopyIn(host, to, bytes);
  }
  void CopyOut(const void* from, void* host, int64_t bytes) override {
    const Waits waits(*this);
    Require(OnDevice(from, bytes) && !OnDevice(host, 1), "CopyOut: the wrong way");
    cpu_->CopyOut(from, host, bytes);
  }
  Status Finish() override {
    const Waits waits(*this);
    return broken_ != nullptr && *broken_ ? error_ : Status::Ok();
  }

  void Embed(const WeightMatrix& table, std::span<const int32_t> ids, FloatView out) override {
    const Runs runs(*this);
    cpu_->Embed(table, ids, out);
  }
  void Linear(ConstFloatView x, const WeightMatrix& weight, ActivationFormat activation, int groups,
              FloatView out) override {
    const Runs runs(*this);
    cpu_->Linear(x, weight, activation, groups, out);
  }
  void RmsNorm(ConstFloatView x, const WeightVector& weight, float eps, FloatView out) override {
    const Runs runs(*this);
    cpu_->RmsNorm(x, weight, eps, out);
  }
  void RopeTable(std::span<const int64_t> positions, std::span<const float> frequencies, FloatView cos_sin) override {
    const Runs runs(*this);
    cpu_->RopeTable(positions, frequencies, cos_sin);
  }
  void Rope(FloatView x, int heads, ConstFloatView cos_sin, bool inverse) override {
    const Runs runs(*this);
    cpu_->Rope(x, heads, cos_sin, inverse);
  }
  void MixStreams(ConstFloatView streams, int n, const WeightMatrix& fn, const WeightVector& base,
                  const WeightVector& scale, int sinkhorn_iterations, float hc_eps, float rms_eps,
                  FloatView out) override {
    const Runs runs(*this);
    cpu_->MixStreams(streams, n, fn, base, scale, sinkhorn_iterations, hc_eps, rms_eps, out);
  }
  void CollapseNorm(ConstFloatView streams, int n, ConstFloatView pre, const WeightVector& weight, float eps,
                    FloatView normed, FloatView collapsed) override {
    const Runs runs(*this);
    cpu_->CollapseNorm(streams, n, pre, weight, eps, normed, collapsed);
  }
  void SpreadStreams(ConstFloatView y, ConstFloatView mix, int n, FloatView streams) override {
    const Runs runs(*this);
    cpu_->SpreadStreams(y, mix, n, streams);
  }
  void MeanStreams(ConstFloatView streams, int n, FloatView out) override {
    const Runs runs(*this);
    cpu_->MeanStreams(streams, n, out);
  }
  void StoreRows(ConstFloatView x, const PackedRows& rows, std::span<const int64_t> destination) override {
    const Runs runs(*this);
    cpu_->StoreRows(x, rows, destination);
  }
  void CopyRows(const PackedRows& from, std::span<const int64_t> source, const PackedRows& to,
                std::span<const int64_t> destination) override {
    const Runs runs(*this);
    cpu_->CopyRows(from, source, to, destination);
  }
  void CopyFloats(std::span<const float* const> from, int64_t columns, std::span<float* const> to) override {
    const Runs runs(*this);
    cpu_->CopyFloats(from, columns, to);
  }
  void KeepRows(std::span<const int32_t> rows, FloatView x) override {
    const Runs runs(*this);
    cpu_->KeepRows(rows, x);
  }
  void Attention(ConstFloatView q, int heads, std::span<const AttentionSequence> sequences, int window,
                 const SelectedRows& selected, const WeightVector& sink, float scale, FloatView out) override {
    const Runs runs(*this);
    cpu_->Attention(q, heads, sequences, window, selected, sink, scale, out);
  }
  void PoolPairs(std::span<const float* const> first, std::span<const float* const> second, FloatView out) override {
    const Runs runs(*this);
    cpu_->PoolPairs(first, second, out);
  }
  void SelectRows(ConstFloatView q, ConstFloatView head_weights, std::span<const IndexSequence> sequences,
                  const IndexSettings& settings, const CandidateBlocks& candidates,
                  const SelectedRows& selected) override {
    const Runs runs(*this);
    cpu_->SelectRows(q, head_weights, sequences, settings, candidates, selected);
  }
  void Route(ConstFloatView x, const WeightMatrix& gate, const WeightVector& bias, bool normalise, float scaling,
             TensorView<int32_t> picks, FloatView weights) override {
    const Runs runs(*this);
    cpu_->Route(x, gate, bias, normalise, scaling, picks, weights);
  }
  void Experts(ConstFloatView x, TensorView<const int32_t> picks, ConstFloatView weights,
               std::span<const ExpertWeights> experts, float limit, ActivationFormat activation,
               FloatView out) override {
    const Runs runs(*this);
    cpu_->Experts(x, picks, weights, experts, limit, activation, out);
  }
  void SwiGlu(ConstFloatView gate, ConstFloatView up, float limit, FloatView hidden) override {
    const Runs runs(*this);
    cpu_->SwiGlu(gate, up, limit, hidden);
  }
  void Scale(float factor, FloatView x) override {
    const Runs runs(*this);
    cpu_->Scale(factor, x);
  }
  void Add(ConstFloatView y, FloatView out) override {
    const Runs runs(*this);
    cpu_->Add(y, out);
  }
  void GatherRows(const WeightMatrix& table, TensorView<const int64_t> rows, FloatView out) override {
    const Runs runs(*this);
    cpu_->GatherRows(table, rows, out);
  }
  void EngramInject(ConstFloatView kv, const WeightVector& q_weight, const WeightVector& k_weight, int n, float eps,
                    FloatView streams) override {
    const Runs runs(*this);
    cpu_->EngramInject(kv, q_weight, k_weight, n, eps, streams);
  }
  void ChooseTokens(ConstFloatView logits, std::span<const TokenRule> rules, std::span<TokenChoice> choices) override {
    const Waits waits(*this);
    cpu_->ChooseTokens(logits, rules, choices);
  }
  void AcceptDrafts(std::span<const DraftCheck> checks, std::span<DraftVerdict> verdicts) override {
    const Waits waits(*this);
    cpu_->AcceptDrafts(checks, verdicts);
  }

 private:
  /// One thread drives.
  class Driver {
   public:
    explicit Driver(DeviceOps& ops) : ops_(ops) {
      Require(!ops_.driven_.exchange(true), "driven by two threads at once");
    }
    ~Driver() { ops_.driven_ = false; }

   private:
    DeviceOps& ops_;
  };
  /// An op whose results nobody waits for.
  class Runs {
   public:
    explicit Runs(DeviceOps& ops) : driver_(ops) { ops.Open(); }

   private:
    Driver driver_;
  };
  /// An op after which the driver has waited.
  class Waits {
   public:
    explicit Waits(DeviceOps& ops) : driver_(ops), ops_(ops) { ops.Open(); }
    ~Waits() { ops_.Close(); }

   private:
    Driver driver_;
    DeviceOps& ops_;
  };

  bool OnDevice(const void* address, int64_t bytes) const {
    const auto* const first = static_cast<const uint8_t*>(address);
    return first >= memory_ && first + bytes <= memory_ + used_;
  }
  void Protect(int protection, bool open) {
    if (open_ == open || used_ == 0) return;
    Require(mprotect(memory_, static_cast<size_t>(used_), protection) == 0, "mprotect fails");
    open_ = open;
  }
  void Open() { Protect(PROT_READ | PROT_WRITE, true); }
  void Close() { Protect(PROT_NONE, false); }

  std::unique_ptr<Ops> cpu_;
  std::shared_ptr<const std::atomic<bool>> broken_;
  Status error_;
  uint8_t* memory_ = nullptr;
  int64_t used_ = 0;
  bool open_ = false;
  std::atomic<bool> driven_{false};
};

}  // namespace

std::unique_ptr<Ops> MakeDeviceOps(std::shared_ptr<const std::atomic<bool>> broken, Status error) {
  return std::make_unique<DeviceOps>(std::move(broken), std::move(error));
}

}  // namespace deepinfer::test
