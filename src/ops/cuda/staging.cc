#include "ops/cuda/staging.h"

#include "ops/cuda/exact_linear.h"

#include <algorithm>
#include <cstring>
#include <iterator>
#include <limits>

namespace deepinfer::cuda {
namespace {

int64_t SpanBytes(ConstFloatView view) {
  return view.rows == 0 ? 0 : ((view.rows - 1) * view.stride + view.columns) * static_cast<int64_t>(sizeof(float));
}

int64_t FormBytes(ConstFloatView x, Preparation preparation) {
  const int64_t terms = preparation == Preparation::kTerms ? kExactTerms : 1;
  return terms * x.rows * x.columns * static_cast<int64_t>(sizeof(uint16_t));
}

}  // namespace

void DeviceRanges::Add(const void* data, int64_t bytes) {
  const auto* begin = static_cast<const uint8_t*>(data);
  const uint8_t* end = begin + bytes;
  // Memory that was given back comes again: what touches becomes one range.
  auto at = ranges_.upper_bound(begin);
  if (at != ranges_.begin() && std::prev(at)->second >= begin) {
    --at;
    begin = at->first;
  }
  while (at != ranges_.end() && at->first <= end) {
    end = std::max(end, at->second);
    at = ranges_.erase(at);
  }
  ranges_.emplace(begin, end);
}

bool DeviceRanges::Contains(const void* address) const {
  const auto* byte = static_cast<const uint8_t*>(address);
  const auto above = ranges_.upper_bound(byte);
  return above != ranges_.begin() && byte < std::prev(above)->second;
}

void* Staging::Take(int64_t bytes) {
  if (!ok()) return nullptr;
  void* piece = arena_.Take(static_cast<size_t>(bytes));
  if (piece == nullptr) commands_.Check(cudaErrorMemoryAllocation, "scratch");
  return piece;
}

void Staging::CopyIn(void* device, const void* host, int64_t bytes) {
  if (device == nullptr || bytes == 0) return;
  // Commands before this op may still read this piece of the arena.
  commands_.Flush();
  waits_ = true;
  commands_.Check(cudaMemcpyAsync(device, host, static_cast<size_t>(bytes), cudaMemcpyHostToDevice, commands_.stream()),
                  "copy to the GPU");
}

FloatView Staging::Temporary(int64_t rows, int64_t columns) {
  const int64_t stride = (columns + 3) / 4 * 4;
  const FloatView view{Room<float>(rows * stride), rows, columns, stride};
  prepared_.Forget(view);  // the arena may have got memory that Allocate gave before
  return view;
}

FloatView Staging::Upload(ConstFloatView host) {
  const FloatView device = Temporary(host.rows, host.columns);
  if (!ok() || host.rows == 0 || host.columns == 0) return device;
  commands_.Flush();
  waits_ = true;
  commands_.Check(cudaMemcpy2DAsync(device.data, static_cast<size_t>(device.stride) * 4, host.data,
                                    static_cast<size_t>(std::max(host.stride, host.columns)) * 4,
                                    static_cast<size_t>(host.columns) * 4, static_cast<size_t>(host.rows),
                                    cudaMemcpyHostToDevice, commands_.stream()),
                  "copy to the GPU");
  return device;
}

ConstFloatView Staging::In(ConstFloatView view) {
  if (view.data == nullptr) return {};
  if (!OnDevice(view.data)) return Upload(view);
  commands_.WillRead(view.data, SpanBytes(view));
  return view;
}

FloatView Staging::Out(FloatView view) {
  prepared_.Forget(view);
  if (view.data == nullptr) return view;
  if (OnDevice(view.data)) {
    commands_.WillWrite(view.data, SpanBytes(view));
    return view;
  }
  const FloatView device = Temporary(view.rows, view.columns);
  outputs_.push_back({view, device});
  return device;
}

FloatView Staging::InOut(FloatView view) {
  prepared_.Forget(view);
  if (view.data == nullptr) return view;
  if (OnDevice(view.data)) {
    commands_.WillRead(view.data, SpanBytes(view));
    commands_.WillWrite(view.data, SpanBytes(view));
    return view;
  }
  const FloatView device = Upload(view);
  outputs_.push_back({view, device});
  return device;
}

void Staging::WillWrite(ConstFloatView device) { commands_.WillWrite(device.data, SpanBytes(device)); }

Bf16Rows Staging::Prepare(ConstFloatView x, Preparation preparation, ColumnOrder order) {
  Bf16Rows rows;
  // Temporaries of an op are at the same addresses in the next one.
  if (OnDevice(x.data)) {
    rows = prepared_.Find(x, preparation, order);
    if (rows.values != nullptr) {
      commands_.WillRead(rows.values, FormBytes(x, preparation));
      return rows;
    }
    rows = prepared_.Add(x, preparation, order, commands_);
    if (rows.values == nullptr) commands_.Check(cudaErrorMemoryAllocation, "activations");
    commands_.WillWrite(rows.values, FormBytes(x, preparation));
  } else {
    rows = {Room<uint16_t>(FormBytes(x, preparation) / static_cast<int64_t>(sizeof(uint16_t))), x.columns};
  }
  Launch(preparation == Preparation::kTerms ? &SplitRows : &QuantiseRows, x, order, rows);
  return rows;
}

RowForms Staging::Forms(ConstFloatView out) {
  if (!ok() || !OnDevice(out.data)) return RowForms();
  const RowForms forms = prepared_.AddWanted(out, commands_);
  for (const uint16_t* values : {forms.fp8, forms.fp4}) {
    commands_.WillWrite(values, FormBytes(out, Preparation::kQuantised));
  }
  for (const uint16_t* values : {forms.terms, forms.fp8_terms}) {
    commands_.WillWrite(values, FormBytes(out, Preparation::kTerms));
  }
  return forms;
}

template <typename Function>
WeightMatrix Staging::PlaceWeight(const WeightMatrix& host, const Function& find) {
  if (OnDevice(host.data)) {  // activations
    commands_.WillRead(host.data, host.rows * host.row_bytes());
    return host;
  }
  WeightMatrix device = host;
  const int64_t value_bytes = host.rows * host.row_bytes();
  const int64_t scale_bytes = host.total_bytes() - value_bytes;
  const auto place = [&](const uint8_t* data, int64_t bytes, WeightBytes kind) -> const uint8_t* {
    if (data == nullptr) return nullptr;
    if (store_ == nullptr) {
      uint8_t* copy = Room<uint8_t>(bytes);
      CopyIn(copy, data, bytes);
      Order(copy, bytes, kind);
      return copy;
    }
    const uint8_t* copy = find(data, bytes, kind);
    if (copy == nullptr) commands_.Check(cudaErrorMemoryAllocation, "weights");
    return copy;
  };
  device.data = place(host.data, value_bytes, ValuesOf(host.format));
  device.scale = place(host.scale, scale_bytes, WeightBytes::kPlain);
  return device;
}

WeightMatrix Staging::Weight(const WeightMatrix& host) {
  return PlaceWeight(host, [this](const uint8_t* data, int64_t bytes, WeightBytes kind) {
    return store_->Find(data, bytes, kind, commands_);
  });
}

WeightMatrix Staging::WeightInPlace(const WeightMatrix& host) {
  return PlaceWeight(host, [this](const uint8_t* data, int64_t bytes, WeightBytes kind) {
    return store_->FindInPlace(data, bytes, kind, commands_);
  });
}

WeightVector Staging::Vector(const WeightVector& host) {
  const WeightMatrix matrix{host.data, nullptr, host.is_bf16 ? WeightFormat::kBF16 : WeightFormat::kF32, 1, host.size};
  WeightVector device = host;
  device.data = Weight(matrix).data;
  return device;
}

const uint8_t* Staging::Table(const void* weights, const void* table, int64_t bytes) {
  if (store_ == nullptr) return Array(std::span(static_cast<const uint8_t*>(table), static_cast<size_t>(bytes)));
  const uint8_t* device = store_->Table(weights, table, bytes, commands_);
  if (device == nullptr) commands_.Check(cudaErrorMemoryAllocation, "weights");
  return device;
}

const uint8_t* Staging::TableOfCopies(std::span<const uint8_t> table) {
  const uint8_t* uploaded = Array(table);
  if (!ok()) return nullptr;
  const uint8_t* copy = store_->PutInWindow(uploaded, std::ssize(table), commands_);
  if (copy == nullptr) commands_.Check(cudaErrorMemoryAllocation, "weights");
  return copy;
}

PackedRows Staging::Rows(const PackedRows& rows, int64_t count) {
  PackedRows device = rows;
  if (count == 0) return device;
  const auto pages = static_cast<size_t>((count + rows.rows_per_page - 1) / rows.rows_per_page);
  if (OnDevice(rows.pages[0])) {
    device.pages = rows.device_pages != nullptr ? rows.device_pages : Array(std::span(rows.pages, pages));
    return device;
  }
  const int64_t page_bytes = rows.rows_per_page * PackedRowBytes(rows.format, rows.channels).total();
  std::vector<uint8_t*> list(pages);
  for (size_t p = 0; p < pages; ++p) {
    list[p] = Room<uint8_t>(page_bytes);
    CopyIn(list[p], rows.pages[p] + rows.offset, page_bytes);
  }
  device.offset = 0;
  device.pages = Array(std::span<uint8_t* const>(list));
  return device;
}

Status Staging::Finish() {
  if (finished_) return commands_.status();
  finished_ = true;
  if (outputs_.empty() && copies_.empty()) {
    const Status status = waits_ ? commands_.Wait() : commands_.status();
    FreeTemporaries();
    return status;
  }
  commands_.Flush();
  for (const Output& output : outputs_) {
    if (!ok() || output.host.rows == 0 || output.host.columns == 0) continue;
    commands_.Check(
        cudaMemcpy2DAsync(output.host.data, static_cast<size_t>(std::max(output.host.stride, output.host.columns)) * 4,
                          output.device.data, static_cast<size_t>(output.device.stride) * 4,
                          static_cast<size_t>(output.host.columns) * 4, static_cast<size_t>(output.host.rows),
                          cudaMemcpyDeviceToHost, commands_.stream()),
        "copy from the GPU");
  }
  for (const Copy& copy : copies_) {
    if (!ok() || copy.bytes == 0) continue;
    commands_.Check(cudaMemcpyAsync(copy.host, copy.device, static_cast<size_t>(copy.bytes), cudaMemcpyDeviceToHost,
                                    commands_.stream()),
                    "copy from the GPU");
  }
  if (!commands_.Wait().ok()) {
    for (const Output& output : outputs_) {
      for (int64_t t = 0; t < output.host.rows; ++t) {
        std::fill_n(output.host.row(t), output.host.columns, std::numeric_limits<float>::quiet_NaN());
      }
    }
    for (const Copy& copy : copies_) std::memset(copy.host, 0, static_cast<size_t>(copy.bytes));
  }
  FreeTemporaries();
  return commands_.status();
}

}  // namespace deepinfer::cuda
