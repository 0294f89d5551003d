#include "image/axis.h"

#include <algorithm>
#include <cmath>

namespace fastfeed {
namespace {

constexpr double kPi = 3.14159265358979323846;

double support(Filter filter) {
  switch (filter) {
    case Filter::bilinear:
    case Filter::linear: return 1.0;
    case Filter::bicubic: return 2.0;
    case Filter::lanczos: return 3.0;
    case Filter::box:
    case Filter::nearest: return 0.5;
  }
  return 1.0;
}

// sinc(x) * sinc(x / 3), by one sine: sin(3a) = 3 sin(a) - 4 sin(a)^3.
double lanczos(double x) {
  if (x == 0.0) return 1.0;
  const double angle = kPi / 3.0 * x, ratio = std::sin(angle) / angle, squared = ratio * angle * (ratio * angle);
  return ratio * ratio * (1.0 - squared * (4.0 / 3.0));
}

// Pillow's filters: triangle; Keys' cubic with a = -0.5; Lanczos with three lobes; a box of one pixel.
double value(Filter filter, double x) {
  const double t = std::fabs(x);
  switch (filter) {
    case Filter::bilinear:
    case Filter::linear: return t < 1.0 ? 1.0 - t : 0.0;
    case Filter::bicubic:
      if (t < 1.0) return (1.5 * t - 2.5) * t * t + 1.0;
      return t < 2.0 ? ((-0.5 * t + 2.5) * t - 4.0) * t + 2.0 : 0.0;
    case Filter::lanczos: return t < 3.0 ? lanczos(x) : 0.0;
    case Filter::box:
    case Filter::nearest: return x > -0.5 && x <= 0.5 ? 1.0 : 0.0;
  }
  return 0.0;
}

}  // namespace

void Axis::set(Filter filter, double start, double length, int inputs, int outputs) {
  const double scale = length / outputs, stretch = filter == Filter::linear ? 1.0 : std::max(scale, 1.0);
  const double shrink = 1.0 / stretch;
  const double reach = support(filter) * stretch;
  taps = (int(std::ceil(reach)) * 2 + 4) & ~3;
  first.resize(size_t(outputs));
  count.resize(size_t(outputs));
  weight.assign(size_t(outputs) * size_t(taps), 0.0f);
  if (filter == Filter::nearest)
    each_nearest(start, length, outputs, [&](int i, double pixel, double) {
      first[size_t(i)] = int(std::clamp(pixel, 0.0, double(inputs - 1)));
      count[size_t(i)] = 1;
      weight[size_t(i) * size_t(taps)] = 1.0f;
    });
  std::vector<double> values(static_cast<size_t>(taps));
  for (int i = 0; i < outputs && filter != Filter::nearest; ++i) {
    const double center = start + (i + 0.5) * scale;
    int low = std::min(std::max(int(center - reach + 0.5), 0), inputs - 1);
    int high = std::max(std::min(int(center + reach + 0.5), inputs), low + 1);
    high = std::min(high, low + taps);
    double total = 0;
    for (int k = 0; k < high - low; ++k) total += values[size_t(k)] = value(filter, (k + low - center + 0.5) * shrink);
    if (total == 0.0) values[0] = total = 1.0;
    // Zero weights at both ends cost time and move the window. A zero inside the support (Keys at 1) stays: without
    // it the next output could begin before this one, and push() and low() rely on windows that begin and end in order.
    int from = 0, to = high - low;
    const auto beyond = [&](int k) {
      return values[size_t(k)] == 0.0 && std::fabs((k + low - center + 0.5) * shrink) >= support(filter);
    };
    while (from + 1 < to && beyond(from)) ++from;
    while (to > from + 1 && beyond(to - 1)) --to;
    first[size_t(i)] = low + from;
    count[size_t(i)] = to - from;
    for (int k = from; k < to; ++k)
      weight[size_t(i) * size_t(taps) + size_t(k - from)] = float(values[size_t(k)] / total);
  }
  most = *std::max_element(count.begin(), count.end());
  copies = scale == 1 && most == 1;  // and in order: where a start is all but half a pixel, rounding leaves one out
  for (size_t i = 0; copies && i < first.size(); ++i) copies = first[i] == first[0] + int(i);
}

int Axis::high() const {
  int end = 0;
  for (size_t i = 0; i < first.size(); ++i) end = std::max(end, first[i] + count[i]);
  return end;
}

const Axis& Axes::get(Filter filter, double start, double length, int inputs, int outputs) {
  Kept* oldest = kept_;
  for (Kept& kept : kept_) {
    if (kept.used && kept.filter == filter && kept.start == start && kept.length == length && kept.inputs == inputs &&
        kept.outputs == outputs) {
      kept.used = ++now_;
      return kept.axis;
    }
    if (kept.used < oldest->used) oldest = &kept;
  }
  oldest->used = 0;  // until it is complete: set() may run out of memory
  oldest->axis.set(filter, start, length, inputs, outputs);
  oldest->filter = filter, oldest->start = start, oldest->length = length;
  oldest->inputs = inputs, oldest->outputs = outputs, oldest->used = ++now_;
  return oldest->axis;
}

}  // namespace fastfeed
