#include "ops/pillow_passes.h"

#include <algorithm>
#include <cstring>

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "ops/pillow_down.cpp"
#include <hwy/foreach_target.h>
#include <hwy/highway.h>

#include "ops/pillow_sums-inl.h"

HWY_BEFORE_NAMESPACE();
namespace fastfeed {
namespace HWY_NAMESPACE {
namespace {

#if FASTFEED_PILLOW_BLOCKS

// A vector of one row of outputs, from four rows in each step.
HWY_INLINE V8 down(const uint8_t* const* rows, size_t x, const int32_t* words, int steps) {
  Sum first(kHalf), second(kHalf), third(kHalf), fourth(kHalf);
  for (int step = 0; step < steps; ++step, rows += 4, words += kWords) {
    const V8 a = hn::LoadU(d8, rows[0] + x), b = hn::LoadU(d8, rows[1] + x);
    const V8 c = hn::LoadU(d8, rows[2] + x), d = hn::LoadU(d8, rows[3] + x);
    const Words four = set(words);
    const auto ab = hn::BitCast(d16, hn::InterleaveLower(d8, a, b));
    const auto cd = hn::BitCast(d16, hn::InterleaveLower(d8, c, d));
    const auto ab2 = hn::BitCast(d16, hn::InterleaveUpper(d8, a, b));
    const auto cd2 = hn::BitCast(d16, hn::InterleaveUpper(d8, c, d));
    first.add(hn::BitCast(d8, hn::InterleaveLower(d16, ab, cd)), four);
    second.add(hn::BitCast(d8, hn::InterleaveUpper(d16, ab, cd)), four);
    third.add(hn::BitCast(d8, hn::InterleaveLower(d16, ab2, cd2)), four);
    fourth.add(hn::BitCast(d8, hn::InterleaveUpper(d16, ab2, cd2)), four);
  }
  return packed(first, second, third, fourth);
}

void resize_down(const Weights& w, const Pixels& in, size_t bytes, uint8_t* out, ptrdiff_t out_row, Scratch& scratch) {
  Scratch::Frame frame(scratch);
  const uint8_t* first = in.at;
  ptrdiff_t row = in.row;
  if (bytes < kBytes) {
    uint8_t* const wide = frame.bytes(size_t(w.high) * kBytes);
    for (int y = w.low; y < w.high; ++y) std::memcpy(wide + size_t(y) * kBytes, in.at + y * in.row, bytes);
    first = wide, row = kBytes;
  }
  const uint8_t** const rows = frame.take<const uint8_t*>(size_t(w.taps) + 3);
  int32_t* const words = frame.take<int32_t>(size_t(w.taps + 3) / 4 * kWords);
  for (int y = 0; y < w.outputs; ++y) {
    const int count = w.count[y], steps = (count + 3) / 4;
    for (int k = 0; k < 4 * steps; ++k) rows[k] = first + (w.first[y] + std::min(k, count - 1)) * row;
    for (int step = 0; step < steps; ++step) {
      int32_t four[4] = {0, 0, 0, 0};
      std::memcpy(four, w.weight + size_t(y) * size_t(w.taps) + 4 * step,
                  size_t(std::min(4, count - 4 * step)) * sizeof(int32_t));
      encode(four, words + step * kWords, 1);
    }
    uint8_t* const to = out + y * out_row;
    if (bytes < kBytes) {
      HWY_ALIGN uint8_t made[kBytes];
      hn::Store(down(rows, 0, words, steps), d8, made);
      std::memcpy(to, made, bytes);
      continue;
    }
    for (size_t x = 0; x + kBytes <= bytes; x += kBytes) hn::StoreU(down(rows, x, words, steps), d8, to + x);
    if (bytes % kBytes) hn::StoreU(down(rows, bytes - kBytes, words, steps), d8, to + bytes - kBytes);
  }
}

#else

void resize_down(const Weights& w, const Pixels& in, size_t bytes, uint8_t* out, ptrdiff_t out_row, Scratch& scratch) {
  Scratch::Frame frame(scratch);
  int32_t* const totals = frame.take<int32_t>(bytes);
  for (int y = 0; y < w.outputs; ++y) {
    std::fill(totals, totals + bytes, 0);
    for (int k = 0; k < w.count[y]; ++k) {
      const uint8_t* const from = in.at + (w.first[y] + k) * in.row;
      const int32_t weight = w.weight[size_t(y) * size_t(w.taps) + size_t(k)];
      for (size_t x = 0; x < bytes; ++x) totals[x] += weight * from[x];
    }
    uint8_t* const to = out + y * out_row;
    for (size_t x = 0; x < bytes; ++x) to[x] = rounded(totals[x]);
  }
}

#endif

}  // namespace
}  // namespace HWY_NAMESPACE
}  // namespace fastfeed
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace fastfeed {

HWY_EXPORT(resize_down);

void resize_down(const Weights& weights, const Pixels& in, size_t bytes, uint8_t* out, ptrdiff_t out_row,
                 Scratch& scratch) {
  HWY_DYNAMIC_DISPATCH(resize_down)(weights, in, bytes, out, out_row, scratch);
}

}  // namespace fastfeed
#endif
