#include <algorithm>
#include <cstring>

#include "ops/filters.h"

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "ops/sharpness.cpp"
#include <hwy/foreach_target.h>
#include <hwy/highway.h>

#include "ops/floats-inl.h"

HWY_BEFORE_NAMESPACE();
namespace fastfeed {
namespace HWY_NAMESPACE {
namespace {

// sums[i] = above[i] + here[i] + below[i]
void add_rows(const uint8_t* above, const uint8_t* here, const uint8_t* below, uint16_t* sums, size_t count) {
  const hn::ScalableTag<uint16_t> u;
  const hn::Rebind<uint8_t, decltype(u)> b;
  for (size_t i = 0; i < count; i += hn::Lanes(u)) {  // up to a vector more than asked for
    const auto top = hn::PromoteTo(u, hn::LoadU(b, above + i)), middle = hn::PromoteTo(u, hn::LoadU(b, here + i));
    hn::StoreU(hn::Add(hn::Add(top, middle), hn::PromoteTo(u, hn::LoadU(b, below + i))), u, sums + i);
  }
}

// The mean of 3 x 3 pixels from the sums of columns, or a mean in which the pixel itself counts five times. Rounded;
// 9 and 13 are odd, so there are no ties, and the reciprocals are exact for sums of so many bytes.
template <bool kFive>
HWY_INLINE void smooth(const uint16_t* sums, const uint8_t* here, int channels, uint8_t* out, size_t count) {
  const hn::ScalableTag<uint16_t> u;
  const hn::RebindToSigned<decltype(u)> w;
  const hn::Rebind<uint8_t, decltype(u)> b;
  const auto half = hn::Set(u, kFive ? 6 : 4), reciprocal = hn::Set(u, kFive ? 5042 : 7282);
  for (size_t i = 0; i < count; i += hn::Lanes(u)) {
    auto sum = hn::Add(hn::Add(hn::LoadU(u, sums + i), hn::LoadU(u, sums + i + channels)),
                       hn::Add(hn::LoadU(u, sums + i + 2 * channels), half));
    if (kFive) sum = hn::Add(sum, hn::ShiftLeft<2>(hn::PromoteTo(u, hn::LoadU(b, here + i))));
    hn::StoreU(hn::DemoteTo(b, hn::BitCast(w, hn::MulHigh(sum, reciprocal))), b, out + i);
  }
}

constexpr size_t kVector = 16;  // bytes that OpenCV has in a vector

// out = share of here + the rest of smooth - 0.499, rounded: Pillow cuts fractions off. What is rounded on the way is
// as in OpenCV where it has AVX2: the last bytes of a row, which do not fill a vector, have another order.
template <bool kLast>
HWY_INLINE void sharpen_block(const uint8_t* here, const uint8_t* smooth, FloatV share, FloatV rest, uint8_t* out) {
  const FloatV cut = hn::Set(Floats(), -0.499f);
  Quad a = floats_of_bytes(here);
  const Quad b = floats_of_bytes(smooth);
  for (int k = 0; k < 4; ++k) {
    if (kLast) a.v[k] = hn::Add(fused(a.v[k], share, hn::Mul(b.v[k], rest)), cut);
    else a.v[k] = fused(a.v[k], share, fused(b.v[k], rest, cut));
  }
  store_bytes(a, out);
}

void sharpen(uint8_t* image, int height, int width, int channels, float share, float rest, bool five, uint8_t* memory) {
  const size_t row = size_t(width) * size_t(channels), count = row - 2 * size_t(channels);
  const size_t room = (row + 2 * HWY_MAX_BYTES + 63) / 64 * 64;
  uint8_t *above = memory, *here = memory + room, *means = memory + 2 * room, *below = memory + 3 * room;
  uint16_t* sums = reinterpret_cast<uint16_t*>(memory + 4 * room);
  const FloatV a = hn::Set(Floats(), share), b = hn::Set(Floats(), rest);
  std::memcpy(here, image, row);
  std::memcpy(below, image + row, row);
  for (int y = 1; y + 1 < height; ++y) {
    std::swap(above, here);
    std::swap(here, below);
    uint8_t* at = image + size_t(y) * row;
    std::memcpy(below, at + row, row);
    add_rows(above, here, below, sums, row);
    const uint8_t* center = here + channels;
    if (five) smooth<true>(sums, center, channels, means, count);
    else smooth<false>(sums, center, channels, means, count);
    uint8_t* out = at + channels;
    const size_t end = count / kVector * kVector;
    size_t i = 0;
    for (; i + quad_bytes() <= end; i += quad_bytes()) sharpen_block<false>(center + i, means + i, a, b, out + i);
    uint8_t made[HWY_MAX_BYTES];
    if (i < end) {
      sharpen_block<false>(center + i, means + i, a, b, made);
      std::memcpy(out + i, made, end - i);
    }
    for (i = end; i < count; i += quad_bytes()) {
      sharpen_block<true>(center + i, means + i, a, b, made);
      std::memcpy(out + i, made, std::min(count - i, quad_bytes()));
    }
  }
}

}  // namespace
}  // namespace HWY_NAMESPACE
}  // namespace fastfeed
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace fastfeed {

HWY_EXPORT(sharpen);

void sharpness(Image& image, double factor, Scratch& scratch) {
  if (image.height < 3 || image.width < 3) return;
  // 13 smooth = 9 mean + 4 center: far from 1 the rounding of the mean would be seen
  const bool five = factor > 2;
  const double rest = five ? 1 - factor : (1 - factor) * 9 / 13;
  Scratch::Frame frame(scratch);
  uint8_t* memory = frame.bytes(6 * (image.row() + 3 * 64));
  HWY_DYNAMIC_DISPATCH(sharpen)
  (image.at, image.height, image.width, image.channels, float(1 - rest), float(rest), five, memory);
}

}  // namespace fastfeed
#endif
