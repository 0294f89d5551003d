#include "ops/pillow_weights.h"

#include <algorithm>
#include <cmath>

namespace fastfeed {
namespace {

constexpr double kPi = 3.14159265358979323846;

// Each as Pillow writes it: another order of the same operations rounds differently.
struct Triangle {
  static constexpr double kReach = 1.0;
  double operator()(double x) const {
    x = std::fabs(x);
    return x < 1.0 ? 1.0 - x : 0.0;
  }
};

struct Cubic {
  static constexpr double kReach = 2.0;
  double operator()(double x) const {
    constexpr double a = -0.5;
    x = std::fabs(x);
    if (x < 1.0) return ((a + 2.0) * x - (a + 3.0)) * x * x + 1;
    return x < 2.0 ? (((x - 5) * x + 8) * x - 4) * a : 0.0;
  }
};

double sinc(double x) {
  if (x == 0.0) return 1.0;
  x = x * kPi;
  return std::sin(x) / x;
}

struct Lanczos {
  static constexpr double kReach = 3.0;
  double operator()(double x) const { return -3.0 <= x && x < 3.0 ? sinc(x) * sinc(x / 3) : 0.0; }
};

struct Mean {
  static constexpr double kReach = 0.5;
  double operator()(double x) const { return x > -0.5 && x <= 0.5 ? 1.0 : 0.0; }
};

// Antialiased if it is as wide as the reduction, at least.
template <class Shape, bool kWidens = true>
Weights weights_of(const Stretch& stretch, bool mirrored, Scratch::Frame& frame) {
  const Shape shape;
  const double scale = double(stretch.end - stretch.start) / stretch.outputs;
  const double wide = kWidens ? std::max(scale, 1.0) : 1.0;
  const double reach = Shape::kReach * wide, narrow = 1.0 / wide;
  Weights w{};
  w.outputs = stretch.outputs;
  w.taps = int(std::ceil(reach)) * 2 + 1;
  w.first = frame.take<int>(size_t(w.outputs));
  w.count = frame.take<int>(size_t(w.outputs));
  w.weight = frame.take<int32_t>(size_t(w.outputs) * size_t(w.taps));
  w.low = stretch.inputs, w.high = 0;
  double* const values = frame.take<double>(size_t(w.taps));
  for (int i = 0; i < w.outputs; ++i) {
    const double center = stretch.start + (i + 0.5) * scale;
    const int low = std::max(int(center - reach + 0.5), 0);
    const int n = std::min(std::min(int(center + reach + 0.5), stretch.inputs) - low, w.taps);
    double total = 0.0;
    for (int k = 0; k < n; ++k) total += values[k] = shape((k + low - center + 0.5) * narrow);
    const int to = mirrored ? w.outputs - 1 - i : i;
    int32_t* const weight = w.weight + size_t(to) * size_t(w.taps);
    const double divisor = total != 0.0 ? total : 1.0;
    int from = 0, count = std::max(n, 0);
    for (int k = 0; k < count; ++k) {
      const double value = values[k] / divisor * (1 << Weights::kBits);
      weight[k] = int32_t(value + (value < 0 ? -0.5 : 0.5));
    }
    while (count > 0 && weight[count - 1] == 0) --count;
    while (from < count && weight[from] == 0) ++from;
    if (from > 0) std::copy(weight + from, weight + count, weight);
    count -= from;
    std::fill(weight + count, weight + w.taps, 0);
    w.first[to] = count > 0 ? low + from : 0;
    w.count[to] = count;
    if (count == 0) continue;
    w.low = std::min(w.low, low + from);
    w.high = std::max(w.high, low + from + count);
  }
  if (w.low >= w.high) w.low = 0, w.high = 1;
  for (int i = 0; i < w.outputs; ++i)
    if (w.count[i] == 0) w.first[i] = w.low;
  return w;
}

}  // namespace

Weights Weights::of(const Stretch& stretch, Filter filter, bool mirrored, Scratch::Frame& frame) {
  switch (filter) {
    case Filter::bilinear: return weights_of<Triangle>(stretch, mirrored, frame);
    case Filter::bicubic: return weights_of<Cubic>(stretch, mirrored, frame);
    case Filter::lanczos: return weights_of<Lanczos>(stretch, mirrored, frame);
    case Filter::linear: return weights_of<Triangle, false>(stretch, mirrored, frame);
    case Filter::box:
    case Filter::nearest: break;
  }
  return weights_of<Mean>(stretch, mirrored, frame);
}

}  // namespace fastfeed
