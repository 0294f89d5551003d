// Blur along a line, as if the camera had moved.
#include <cmath>
#include <cstring>

#include "ops/filters.h"
#include "ops/warps.h"

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "ops/motion.cpp"
#include <hwy/foreach_target.h>
#include <hwy/highway.h>

HWY_BEFORE_NAMESPACE();
namespace fastfeed {
namespace HWY_NAMESPACE {
namespace {
namespace hn = hwy::HWY_NAMESPACE;

using Sums = hn::ScalableTag<uint16_t>;
using Some = hn::Rebind<uint8_t, Sums>;

// sum * reciprocal / 2^(16 + shift) is the rounded mean: of an odd number of bytes, below 2^15, it is exact.
HWY_INLINE hn::Vec<Some> mean(hn::Vec<Sums> sum, hn::Vec<Sums> reciprocal, int shift) {
  const hn::RebindToSigned<Sums> w;
  const auto whole = hn::ShiftRightSame(hn::MulHigh(sum, reciprocal), shift);
  return hn::DemoteTo(Some(), hn::BitCast(w, whole));
}

void average_row(const uint8_t* in, const ptrdiff_t* taps, int count, uint8_t* out, size_t bytes) {
  const Sums u;
  const Some b;
  const size_t lanes = hn::Lanes(u);
  const int shift = int(hwy::FloorLog2(uint32_t(count)));
  const auto half = hn::Set(u, uint16_t(count / 2));
  const auto reciprocal = hn::Set(u, uint16_t(((uint32_t(1) << (16 + shift)) + uint32_t(count) - 1) / uint32_t(count)));
  size_t i = 0;
  for (; i + 4 * lanes <= bytes; i += 4 * lanes) {
    auto first = half, second = half, third = half, fourth = half;
    for (int k = 0; k < count; ++k) {
      const uint8_t* at = in + taps[k] + i;
      first = hn::Add(first, hn::PromoteTo(u, hn::LoadU(b, at)));
      second = hn::Add(second, hn::PromoteTo(u, hn::LoadU(b, at + lanes)));
      third = hn::Add(third, hn::PromoteTo(u, hn::LoadU(b, at + 2 * lanes)));
      fourth = hn::Add(fourth, hn::PromoteTo(u, hn::LoadU(b, at + 3 * lanes)));
    }
    hn::StoreU(mean(first, reciprocal, shift), b, out + i);
    hn::StoreU(mean(second, reciprocal, shift), b, out + i + lanes);
    hn::StoreU(mean(third, reciprocal, shift), b, out + i + 2 * lanes);
    hn::StoreU(mean(fourth, reciprocal, shift), b, out + i + 3 * lanes);
  }
  uint8_t made[HWY_MAX_BYTES];
  for (; i < bytes; i += lanes) {  // reads up to a vector more, which is readable behind the last row
    auto sum = half;
    for (int k = 0; k < count; ++k) sum = hn::Add(sum, hn::PromoteTo(u, hn::LoadU(b, in + taps[k] + i)));
    hn::StoreU(mean(sum, reciprocal, shift), b, made);
    std::memcpy(out + i, made, std::min(lanes, bytes - i));
  }
}

}  // namespace
}  // namespace HWY_NAMESPACE
}  // namespace fastfeed
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace fastfeed {

HWY_EXPORT(average_row);

void motion_blur(Image& image, int length, double across, double down, Scratch& scratch) {
  if (length == 1) return;
  Scratch::Frame frame(scratch);
  const int half = length / 2;
  const WarpSource source = copy_with_margin(image, {Border::reflect, {}}, half, scratch);
  const ptrdiff_t row = ptrdiff_t(source.row()), channels = image.channels;
  ptrdiff_t* const taps = frame.take<ptrdiff_t>(size_t(length));
  const double toward_zero = 1 - 1e-9;  // of two pixels that are equally near, on any machine
  for (int k = -half; k <= half; ++k)
    taps[k + half] = ptrdiff_t(std::nearbyint(k * down * toward_zero)) * row +
                     ptrdiff_t(std::nearbyint(k * across * toward_zero)) * channels;
  for (int y = 0; y < image.height; ++y) {
    const uint8_t* at = source.at + (y + half) * row + half * channels;
    HWY_DYNAMIC_DISPATCH(average_row)(at, taps, length, image.at + size_t(y) * image.row(), image.row());
  }
}

}  // namespace fastfeed
#endif
