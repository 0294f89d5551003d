#include "resample.h"

#include <algorithm>
#include <cmath>
#include <cstring>

#include "ops/mirror.h"

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "resample.cpp"
#include <hwy/foreach_target.h>
#include <hwy/highway.h>

HWY_BEFORE_NAMESPACE();
namespace fastfeed {
namespace HWY_NAMESPACE {
namespace {
namespace hn = hwy::HWY_NAMESPACE;

// Several rows in one pass: the sums are then read and written once for all of them. `kNew`: starts new sums.
template <int kRows, bool kNew>
HWY_INLINE void add(float* __restrict sums, const uint8_t* __restrict row, size_t stride, const float* weight,
                    int n) {
  float w[kRows];
  for (int k = 0; k < kRows; ++k) w[k] = weight[k];
  for (int i = 0; i < n; ++i) {
    float sum = kNew ? w[0] * float(row[i]) : sums[i] + w[0] * float(row[i]);
    for (int k = 1; k < kRows; ++k) sum += w[k] * float(row[size_t(k) * stride + size_t(i)]);
    sums[i] = sum;
  }
}

void add_rows(float* sums, const uint8_t* row, size_t stride, const float* weight, int count, int n, bool fresh) {
  if (fresh) {
    const int k = count >= 4 ? 4 : count >= 2 ? 2 : 1;
    if (k == 4) add<4, true>(sums, row, stride, weight, n);
    else if (k == 2) add<2, true>(sums, row, stride, weight, n);
    else add<1, true>(sums, row, stride, weight, n);
    row += size_t(k) * stride, weight += k, count -= k;
  }
  for (; count >= 4; count -= 4, row += 4 * stride, weight += 4) add<4, false>(sums, row, stride, weight, n);
  for (; count >= 2; count -= 2, row += 2 * stride, weight += 2) add<2, false>(sums, row, stride, weight, n);
  if (count) add<1, false>(sums, row, stride, weight, n);
}

typedef float Lanes __attribute__((vector_size(16)));

HWY_INLINE Lanes load(const float* p) {
  Lanes v;
  __builtin_memcpy(&v, p, sizeof v);
  return v;
}

typedef int32_t Levels __attribute__((vector_size(16)));

HWY_INLINE void put(uint8_t* at, Lanes v) {
  v += 0.5f;
  v = v < 0.0f ? Lanes{} : v;
  v = v > 255.0f ? Lanes{255, 255, 255, 255} : v;
  const Levels level = __builtin_convertvector(v, Levels);
  at[0] = uint8_t(level[0]);
  at[1] = uint8_t(level[1]);
  at[2] = uint8_t(level[2]);
}

#if HWY_TARGET == HWY_SCALAR

HWY_INLINE void put(uint8_t* at, ptrdiff_t column, const Lanes (&pixels)[4]) {
  for (int i = 0; i < 4; ++i) put(at + i * column, pixels[i]);
}

#else

HWY_INLINE hn::Vec<hn::Full128<int32_t>> rounded(Lanes v) {
  v += 0.5f;
  hn::Vec<hn::Full128<float>> made;
  __builtin_memcpy(&made, &v, sizeof v);
  return hn::ConvertTo(hn::Full128<int32_t>(), made);
}

// Narrower integers saturate, so that nothing is left to clamp.
HWY_INLINE void put(uint8_t* at, ptrdiff_t column, const Lanes (&pixels)[4]) {
  const hn::Full128<int16_t> half;
  const hn::Full128<uint8_t> byte;
  const auto two = [&](Lanes a, Lanes b) HWY_ATTR {
    return hn::DemoteTo(hn::Full64<uint8_t>(), hn::ReorderDemote2To(half, rounded(a), rounded(b)));
  };
  const auto four = hn::Combine(byte, two(pixels[2], pixels[3]), two(pixels[0], pixels[1]));
  alignas(16) static constexpr uint8_t kOrder[2][16] = {
      {0, 1, 2, 4, 5, 6, 8, 9, 10, 12, 13, 14, 0x80, 0x80, 0x80, 0x80},
      {12, 13, 14, 8, 9, 10, 4, 5, 6, 0, 1, 2, 0x80, 0x80, 0x80, 0x80}};
  alignas(16) uint8_t made[16];
  if (column != 3 && column != -3) {
    hn::Store(four, byte, made);
    for (int i = 0; i < 4; ++i) std::memcpy(at + i * column, made + 4 * i, 3);
    return;
  }
  hn::Store(hn::TableLookupBytesOr0(four, hn::Load(byte, kOrder[column < 0])), byte, made);
  std::memcpy(column < 0 ? at - 9 : at, made, 12);
}

#endif

// kPixels neighboring outputs: four lanes hold a pixel (the fourth is the next pixel's red and is dropped). Several at a
// time, since each addition waits for the one before, and all with as many inputs as the one that has most: weights of
// zero cost less than a jump that depends on the place. kMost: so many, or 0 where that is known at run time only.
template <int kPixels, int kMost>
HWY_INLINE void outputs(const float* sums, const int* first, const float* weight, int taps, int most, int low,
                        uint8_t* at, ptrdiff_t column) {
  const float* p[kPixels];
  Lanes sum[kPixels];
  for (int i = 0; i < kPixels; ++i) {
    p[i] = sums + size_t(first[i] - low) * 3;
    sum[i] = load(p[i]) * weight[i * taps];
  }
  for (int k = 1; k < (kMost ? kMost : most); ++k)
    for (int i = 0; i < kPixels; ++i) sum[i] += load(p[i] + 3 * k) * weight[i * taps + k];
  if constexpr (kPixels == 4) put(at, column, sum);
  else put(at, sum[0]);
}

template <int kMost>
void outputs_of_row(const float* sums, const int* first, const float* weight, int taps, int most, int n, int low,
                    uint8_t* at, ptrdiff_t column) {
  int x = 0;
  for (; x + 4 <= n; x += 4, at += 4 * column)
    outputs<4, kMost>(sums, first + x, weight + size_t(x) * size_t(taps), taps, most, low, at, column);
  for (; x < n; ++x, at += column)
    outputs<1, kMost>(sums, first + x, weight + size_t(x) * size_t(taps), taps, most, low, at, column);
}

// One output row.
void across(const float* sums, const int* first, const float* weight, int taps, int most, int n, int low, uint8_t* at,
            ptrdiff_t column) {
  const auto row = most == 2 ? outputs_of_row<2> : most == 3 ? outputs_of_row<3> : most == 4 ? outputs_of_row<4>
                                                                                             : outputs_of_row<0>;
  row(sums, first, weight, taps, most, n, low, at, column);
}

}  // namespace
}  // namespace HWY_NAMESPACE
}  // namespace fastfeed
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace fastfeed {
namespace {

HWY_EXPORT(add_rows);
HWY_EXPORT(across);

constexpr double kPi = 3.14159265358979323846;

double support(Filter filter) {
  switch (filter) {
    case Filter::bilinear: return 1.0;
    case Filter::bicubic: return 2.0;
    case Filter::lanczos: return 3.0;
    case Filter::box: return 0.5;
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
    case Filter::bilinear: return t < 1.0 ? 1.0 - t : 0.0;
    case Filter::bicubic:
      if (t < 1.0) return (1.5 * t - 2.5) * t * t + 1.0;
      return t < 2.0 ? ((-0.5 * t + 2.5) * t - 4.0) * t + 2.0 : 0.0;
    case Filter::lanczos: return t < 3.0 ? lanczos(x) : 0.0;
    case Filter::box: return x > -0.5 && x <= 0.5 ? 1.0 : 0.0;
  }
  return 0.0;
}

}  // namespace

void Axis::set(Filter filter, double start, double length, int inputs, int outputs) {
  const double scale = length / outputs, stretch = std::max(scale, 1.0), shrink = 1.0 / stretch;
  const double reach = support(filter) * stretch;
  taps = int(std::ceil(reach)) * 2 + 1;
  first.resize(size_t(outputs));
  count.resize(size_t(outputs));
  weight.assign(size_t(outputs) * size_t(taps), 0.0f);
  std::vector<double> values(static_cast<size_t>(taps));
  for (int i = 0; i < outputs; ++i) {
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
  copies = scale == 1 && most == 1;
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

void Resampler::begin(const Axis* vertical, const Axis* horizontal, int left, Target target) {
  vertical_ = vertical, horizontal_ = horizontal, target_ = target;
  low_ = horizontal->low();
  width_ = horizontal->high() - low_;
  offset_ = low_ - left;
  input_ = vertical->low();
  if (vertical->copies && horizontal->copies) return;
  open_ = 0;
  ring_ = 1;  // outputs open at once: few when shrinking, many when enlarging
  for (size_t i = 0, j = 0; i < vertical->first.size(); ++i) {
    while (vertical->first[j] + vertical->count[j] <= vertical->first[i]) ++j;
    ring_ = std::max(ring_, int(i - j) + 1);
  }
  stride_ = (size_t(width_) + size_t(horizontal->most)) * 3 + 4;  // weights of zero, and the fourth lane, read on
  sums_.resize(size_t(ring_) * stride_);
}

void Resampler::push(const uint8_t* rows, size_t step, int count) {
  const int outputs = int(vertical_->first.size()), low = input_, high = input_ += count;
  const uint8_t* pixels = rows + ptrdiff_t(offset_) * 3;
  if (vertical_->copies && horizontal_->copies) {
    for (int y = low; y < high; ++y, pixels += step) copy(y - vertical_->low(), pixels);
    return;
  }
  for (int i = open_; i < outputs && vertical_->first[size_t(i)] < high; ++i) {
    const int begin = vertical_->first[size_t(i)], end = begin + vertical_->count[size_t(i)];
    const int from = std::max(begin, low), to = std::min(end, high);
    if (from >= to) continue;
    float* sums = sums_.data() + size_t(i % ring_) * stride_;
    const float* weight = vertical_->weight.data() + size_t(i) * size_t(vertical_->taps) + (from - begin);
    HWY_DYNAMIC_DISPATCH(add_rows)
    (sums, pixels + size_t(from - low) * step, step, weight, to - from, width_ * 3, from == begin);
    if (to == end) finish(i, sums);
  }
  while (open_ < outputs && vertical_->first[size_t(open_)] + vertical_->count[size_t(open_)] <= high) ++open_;
}

void Resampler::copy(int y, const uint8_t* pixels) {
  uint8_t* at = target_.at + y * target_.row;
  if (target_.column == 3) std::memcpy(at, pixels, size_t(width_) * 3);
  else if (target_.column == -3) copy_rows(pixels, 0, at - 3 * (width_ - 1), 0, 1, width_, 3, true);
  else for (int x = 0; x < width_; ++x) std::memcpy(at + x * target_.column, pixels + 3 * x, 3);
}

void Resampler::finish(int y, const float* sums) {
  HWY_DYNAMIC_DISPATCH(across)
  (sums, horizontal_->first.data(), horizontal_->weight.data(), horizontal_->taps, horizontal_->most,
         int(horizontal_->first.size()), low_, target_.at + y * target_.row, target_.column);
}

}  // namespace fastfeed
#endif
