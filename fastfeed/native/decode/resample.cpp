#include "decode/resample.h"

#include <algorithm>
#include <cmath>
#include <cstring>

#include "ops/mirror.h"

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "decode/resample.cpp"
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

// One output of a row of samples. Four sums, each of every fourth input, then added in pairs: the order in which
// samples() adds them, whatever the processor.
HWY_INLINE uint8_t sample(const float* p, const float* weight, int steps) {
  float sum[4] = {};
  for (int k = 0; k < 4 * steps; k += 4)
    for (int i = 0; i < 4; ++i) sum[i] += p[k + i] * weight[k + i];
  const float level = (sum[0] + sum[2]) + (sum[1] + sum[3]) + 0.5f;
  return uint8_t(level < 0.0f ? 0.0f : level > 255.0f ? 255.0f : level);
}

#if HWY_TARGET != HWY_SCALAR

// Four neighboring outputs of a row of samples. kSteps: so many, or 0 where that is known at run time only.
template <int kSteps>
HWY_INLINE void samples(const float* sums, const int* first, const float* weight, int taps, int steps, int low,
                        uint8_t made[4]) {
  const hn::Full128<float> four;
  hn::Vec<decltype(four)> sum[4];
  const float *p[4], *w[4];
  for (int i = 0; i < 4; ++i) {
    p[i] = sums + (first[i] - low), w[i] = weight + i * taps;
    sum[i] = hn::Mul(hn::LoadU(four, p[i]), hn::LoadU(four, w[i]));
  }
  for (int k = 4; k < 4 * (kSteps ? kSteps : steps); k += 4)
    for (int i = 0; i < 4; ++i)
      sum[i] = hn::Add(sum[i], hn::Mul(hn::LoadU(four, p[i] + k), hn::LoadU(four, w[i] + k)));
  const auto pairs = [&](auto a, auto b) HWY_ATTR {
    return hn::Add(hn::InterleaveLower(four, a, b), hn::InterleaveUpper(four, a, b));
  };
  const auto level = hn::Add(pairs(pairs(sum[0], sum[2]), pairs(sum[1], sum[3])), hn::Set(four, 0.5f));
  const auto whole = hn::ConvertTo(hn::Full128<int32_t>(), level);
  hn::StoreU(hn::DemoteTo(hn::Full32<uint8_t>(), whole), hn::Full32<uint8_t>(), made);
}

#endif

template <int kSteps>
void samples_of_row(const float* sums, const int* first, const float* weight, int taps, int steps, int n, int low,
                    uint8_t* at, ptrdiff_t column) {
  int x = 0;
#if HWY_TARGET != HWY_SCALAR
  for (; x + 4 <= n; x += 4, at += 4 * column) {
    uint8_t made[4];
    samples<kSteps>(sums, first + x, weight + size_t(x) * size_t(taps), taps, steps, low, made);
    if (column == 1) std::memcpy(at, made, 4);
    else
      for (int i = 0; i < 4; ++i) at[i * column] = made[i];
  }
#endif
  for (; x < n; ++x, at += column) *at = sample(sums + (first[x] - low), weight + size_t(x) * size_t(taps), steps);
}

// One output row.
void across(const float* sums, const int* first, const float* weight, int taps, int most, int n, int low, uint8_t* at,
            ptrdiff_t column, int channels) {
  if (channels == 1) {
    const int steps = (most + 3) / 4;
    const auto row = steps == 2 ? samples_of_row<2> : steps == 3 ? samples_of_row<3> : steps == 4 ? samples_of_row<4>
                                                                                                  : samples_of_row<0>;
    row(sums, first, weight, taps, steps, n, low, at, column);
    return;
  }
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

}  // namespace

void Resampler::begin(const Axis* vertical, const Axis* horizontal, int left, Target target, int channels) {
  vertical_ = vertical, horizontal_ = horizontal, target_ = target, channels_ = channels;
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
  // weights of zero, and the fourth lane, read on
  stride_ = (size_t(width_) + size_t(horizontal->most)) * size_t(channels) + 4;
  sums_.resize(size_t(ring_) * stride_);
}

void Resampler::push(const uint8_t* rows, size_t step, int count) {
  const int outputs = int(vertical_->first.size()), low = input_, high = input_ += count;
  const uint8_t* pixels = rows + ptrdiff_t(offset_) * channels_;
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
    (sums, pixels + size_t(from - low) * step, step, weight, to - from, width_ * channels_, from == begin);
    if (to == end) finish(i, sums);
  }
  while (open_ < outputs && vertical_->first[size_t(open_)] + vertical_->count[size_t(open_)] <= high) ++open_;
}

void Resampler::copy(int y, const uint8_t* pixels) {
  uint8_t* at = target_.at + y * target_.row;
  const size_t n = size_t(channels_);
  if (target_.column == channels_) std::memcpy(at, pixels, size_t(width_) * n);
  else if (target_.column == -channels_) copy_rows(pixels, 0, at - channels_ * (width_ - 1), 0, 1, width_, channels_, true);
  else
    for (int x = 0; x < width_; ++x) std::memcpy(at + x * target_.column, pixels + size_t(x) * n, n);
}

void Resampler::finish(int y, const float* sums) {
  HWY_DYNAMIC_DISPATCH(across)
  (sums, horizontal_->first.data(), horizontal_->weight.data(), horizontal_->taps, horizontal_->most,
         int(horizontal_->first.size()), low_, target_.at + y * target_.row, target_.column, channels_);
}

}  // namespace fastfeed
#endif
