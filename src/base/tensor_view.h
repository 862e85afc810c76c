// TensorView: rows of contiguous elements with a stride, the shape every op works on.
//
// A tensor [T, a, b] is viewed as T rows of a*b columns; comments at the use name the inner shape. Thread-safety: a
// value. Ownership: none.
#ifndef DEEPINFER_BASE_TENSOR_VIEW_H_
#define DEEPINFER_BASE_TENSOR_VIEW_H_

#include <cstdint>
#include <type_traits>

namespace deepinfer {

template <typename T>
struct TensorView {
  T* data = nullptr;
  int64_t rows = 0;
  int64_t columns = 0;
  int64_t stride = 0;  ///< elements from one row to the next

  TensorView() = default;
  TensorView(T* d, int64_t r, int64_t c) : data(d), rows(r), columns(c), stride(c) {}
  TensorView(T* d, int64_t r, int64_t c, int64_t s) : data(d), rows(r), columns(c), stride(s) {}
  /// A mutable view is also a read-only one.
  template <typename U>
  requires(std::is_same_v<const U, T>) TensorView(const TensorView<U>& other)  // NOLINT: implicit on purpose
      : data(other.data), rows(other.rows), columns(other.columns), stride(other.stride) {}

  T* row(int64_t index) const { return data + index * stride; }
  TensorView RowRange(int64_t begin, int64_t end) const {
    return {data + begin * stride, end - begin, columns, stride};
  }
  TensorView ColumnRange(int64_t begin, int64_t end) const { return {data + begin, rows, end - begin, stride}; }
};

using FloatView = TensorView<float>;
using ConstFloatView = TensorView<const float>;

}  // namespace deepinfer

#endif  // DEEPINFER_BASE_TENSOR_VIEW_H_
