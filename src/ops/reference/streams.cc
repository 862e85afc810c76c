#include "ops/reference/streams.h"

#include <algorithm>
#include <cmath>
#include <vector>

#include "ops/reference/linear.h"
#include "ops/reference/rows.h"
#include "ops/reference/unpack.h"

namespace deepinfer::reference {
namespace {

// comb [n, n] row major: each row becomes its softmax plus eps.
void SoftmaxRows(float* comb, int n, float eps) {
  for (int i = 0; i < n; ++i) {
    float* row = comb + i * n;
    const float maximum = *std::max_element(row, row + n);
    float sum = 0;
    for (int j = 0; j < n; ++j) sum += row[j] = std::exp(row[j] - maximum);
    for (int j = 0; j < n; ++j) row[j] = row[j] / sum + eps;
  }
}

void DivideByRowSums(float* comb, int n, float eps) {
  for (int i = 0; i < n; ++i) {
    float sum = 0;
    for (int j = 0; j < n; ++j) sum += comb[i * n + j];
    for (int j = 0; j < n; ++j) comb[i * n + j] /= sum + eps;
  }
}

void DivideByColumnSums(float* comb, int n, float eps) {
  for (int j = 0; j < n; ++j) {
    float sum = 0;
    for (int i = 0; i < n; ++i) sum += comb[i * n + j];
    for (int i = 0; i < n; ++i) comb[i * n + j] /= sum + eps;
  }
}

}  // namespace

void MixStreams(ConstFloatView streams, int n, const WeightMatrix& fn, const WeightVector& base,
                const WeightVector& scale, int sinkhorn_iterations, float hc_eps, float rms_eps, FloatView out) {
  const std::vector<float> b = UnpackVector(base);
  const std::vector<float> s = UnpackVector(scale);
  Linear(streams, fn, ActivationFormat::kExact, 1, out);
  for (int64_t t = 0; t < streams.rows; ++t) {
    float* pre = out.row(t);
    float* post = pre + n;
    float* comb = post + n;
    const float inverse = InverseRms(streams.row(t), streams.columns, rms_eps);  // over all n*D values jointly
    for (int i = 0; i < (2 + n) * n; ++i) {
      const int part = i < n ? 0 : i < 2 * n ? 1 : 2;
      pre[i] = pre[i] * inverse * s[static_cast<size_t>(part)] + b[static_cast<size_t>(i)];
    }
    for (int j = 0; j < n; ++j) pre[j] = Sigmoid(pre[j]) + hc_eps;
    for (int j = 0; j < n; ++j) post[j] = 2 * Sigmoid(post[j]);
    // Sinkhorn: rows are sources, columns destinations; ends on the columns.
    SoftmaxRows(comb, n, hc_eps);
    DivideByColumnSums(comb, n, hc_eps);
    for (int iteration = 1; iteration < sinkhorn_iterations; ++iteration) {
      DivideByRowSums(comb, n, hc_eps);
      DivideByColumnSums(comb, n, hc_eps);
    }
  }
}

void CollapseNorm(ConstFloatView streams, int n, ConstFloatView pre, const WeightVector& weight, float eps,
                  FloatView normed, FloatView collapsed) {
  const int64_t width = normed.columns;
  for (int64_t t = 0; t < streams.rows; ++t) {
    for (int64_t d = 0; d < width; ++d) {
      float sum = 0;
      for (int j = 0; j < n; ++j) sum += pre.row(t)[j] * streams.row(t)[j * width + d];
      normed.row(t)[d] = sum;
    }
    if (collapsed.data != nullptr) std::copy_n(normed.row(t), width, collapsed.row(t));
  }
  RmsNorm(normed, weight, eps, normed);
}

void SpreadStreams(ConstFloatView y, ConstFloatView mix, int n, FloatView streams) {
  const int64_t width = y.columns;
  std::vector<float> source(static_cast<size_t>(n));
  for (int64_t t = 0; t < y.rows; ++t) {
    const float* post = mix.row(t) + n;
    const float* comb = post + n;
    for (int64_t d = 0; d < width; ++d) {
      for (int i = 0; i < n; ++i) source[static_cast<size_t>(i)] = streams.row(t)[i * width + d];
      for (int j = 0; j < n; ++j) {
        float sum = post[j] * y.row(t)[d];
        for (int i = 0; i < n; ++i) sum += comb[i * n + j] * source[static_cast<size_t>(i)];
        streams.row(t)[j * width + d] = sum;
      }
    }
  }
}

void MeanStreams(ConstFloatView streams, int n, FloatView out) {
  for (int64_t t = 0; t < out.rows; ++t) {
    for (int64_t d = 0; d < out.columns; ++d) {
      float sum = 0;
      for (int j = 0; j < n; ++j) sum += streams.row(t)[j * out.columns + d];
      out.row(t)[d] = sum / static_cast<float>(n);
    }
  }
}

}  // namespace deepinfer::reference
