#include "ops/cuda/device_attention.h"

namespace deepinfer::cuda {

void DeviceRope(Staging& s, FloatView x, int heads, ConstFloatView cos_sin, bool inverse) {
  const RowForms forms = RopeWithFormsFits(x, heads, cos_sin) ? s.Forms(x) : RowForms();
  if (forms.any()) {
    s.Launch(&RopeWithForms, x, heads, cos_sin, inverse, forms);
  } else {
    s.Launch(&Rope, x, heads, cos_sin, inverse);
  }
}

void DeviceAttention(Staging& s, CudaProducts products, AttentionLists& lists, ConstFloatView q, int heads,
                     std::span<const AttentionSequence> sequences, int window, const SelectedRows& selected,
                     const WeightVector& sink, float scale, ConstFloatView cos_sin, FloatView out) {
  const bool on_device = s.OnDevice(q.data);
  lists.sequences.clear();
  int64_t most_selected = selected.counts == nullptr ? 0 : selected.rows.columns;
  int64_t longest_block = 0;
  for (const AttentionSequence& sequence : sequences) {
    DeviceSequence& copy = lists.sequences.emplace_back();
    copy = {sequence.first_row, sequence.row_count,    sequence.first_position, PackedRows(),        PackedRows(),
            PackedRows(),       sequence.window_start, sequence.ring_slots,     sequence.whole_block};
    if (sequence.row_count == 0) continue;
    if (sequence.whole_block) longest_block = std::max<int64_t>(longest_block, sequence.row_count);
    if (sequence.first_position > 0 && sequence.ring_slots > 0) {
      copy.ring = s.Rows(sequence.ring, std::min<int64_t>(sequence.ring_slots, sequence.first_position));
    }
    copy.fresh = s.Rows(sequence.fresh, sequence.row_count);
    // The device knows what was selected; host pages are copied as far as that reaches.
    int64_t compressed = on_device && sequence.compressed.pages != nullptr ? 1 : 0;
    for (int64_t t = sequence.first_row; !on_device && t < sequence.first_row + sequence.row_count; ++t) {
      const int64_t count = selected.counts == nullptr ? 0 : selected.counts[t];
      if (count > 0) compressed = std::max<int64_t>(compressed, selected.rows.row(t)[count - 1] + 1);
    }
    if (compressed > 0) copy.compressed = s.Rows(sequence.compressed, compressed);
  }
  DeviceLists picks;
  if (selected.counts != nullptr) {
    picks.stride = selected.rows.stride;
    picks.rows = s.InOutArray(selected.rows.data, ListSpan(selected.rows));
    picks.counts = s.InOutArray(selected.counts, q.rows);
  }
  ListOwners(sequences, q.rows, &lists.owners);
  const ConstFloatView queries = s.In(q);
  const FloatView result = s.Out(out);
  const auto* device_sequences = s.Array(std::span<const DeviceSequence>(lists.sequences));
  const int32_t* device_owners = s.Array(std::span<const int32_t>(lists.owners));
  const ConstFloatView table = s.In(cos_sin);
  const int most_keys = static_cast<int>(window + longest_block + most_selected);
  if (products == CudaProducts::kTensorCores && SparseAttentionFits(heads, q.columns / heads)) {
    const int64_t bytes = SparseAttentionScratchBytes(q.rows, heads, most_keys);
    uint8_t* scratch = s.Room<uint8_t>(bytes);
    if (bytes > 0 && table.data != nullptr && RopeWithFormsFits(result, heads, table)) {
      s.Launch(&SparseAttention, queries, heads, device_sequences, device_owners, window, picks, s.Vector(sink), scale,
               most_keys, static_cast<void*>(scratch), result, table, s.Forms(result));
      return;
    }
    s.Launch(&SparseAttention, queries, heads, device_sequences, device_owners, window, picks, s.Vector(sink), scale,
             most_keys, static_cast<void*>(scratch), result, ConstFloatView(), RowForms());
  } else {
    s.Launch(&Attention, queries, heads, device_sequences, device_owners, window, picks, s.Vector(sink), scale,
             most_keys, result);
  }
  if (table.data != nullptr) DeviceRope(s, result, heads, table, true);
}

}  // namespace deepinfer::cuda
