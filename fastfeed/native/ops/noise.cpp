#include <algorithm>
#include <cstring>

#include "ops/filters.h"

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "ops/noise.cpp"
#include <hwy/foreach_target.h>
#include <hwy/highway.h>

#include "ops/floats-inl.h"

HWY_BEFORE_NAMESPACE();
namespace fastfeed {
namespace HWY_NAMESPACE {
namespace {

// quad_bytes() bytes; the noise is rounded before it is added, ties to even. It is below 2**14, so that nothing
// overflows: seven standard deviations of 255 levels are 1785.
HWY_INLINE void add_block(uint8_t* at, const int16_t* steps, FloatV scale) {
#if HWY_TARGET == HWY_SCALAR
  for (int k = 0; k < 4; ++k) {
    const long level = std::lrint(float(steps[k]) * hn::GetLane(scale)) + at[k];
    at[k] = uint8_t(std::min(std::max(level, 0l), 255l));
  }
#else
  const Words w;
  const Floats f;
  const hn::Half<Bytes> half;
  const size_t lanes = hn::Lanes(w);
  for (size_t i = 0; i < 2 * lanes; i += lanes) {
    const auto both = hn::BitCast(Ints(), hn::LoadU(w, steps + i));
    const auto even = hn::ConvertTo(f, hn::ShiftRight<16>(hn::ShiftLeft<16>(both)));  // sign-extended
    const auto odd = hn::ConvertTo(f, hn::ShiftRight<16>(both));
    const auto levels = rounded(hn::Mul(even, scale), hn::Mul(odd, scale));
    const auto pixels = hn::PromoteTo(w, hn::LoadU(half, at + i));
    hn::StoreU(hn::DemoteTo(half, hn::Add(pixels, levels)), half, at + i);
  }
#endif
}

void add_noise(uint8_t* at, const int16_t* steps, float scale, size_t count) {
  const FloatV factor = hn::Set(Floats(), scale);
  size_t i = 0;
  for (; i + quad_bytes() <= count; i += quad_bytes()) add_block(at + i, steps + i, factor);
  if (i == count) return;
  uint8_t bytes[HWY_MAX_BYTES] = {};
  int16_t words[HWY_MAX_BYTES] = {};
  std::memcpy(bytes, at + i, count - i), std::memcpy(words, steps + i, (count - i) * sizeof(int16_t));
  add_block(bytes, words, factor);
  std::memcpy(at + i, bytes, count - i);
}

}  // namespace
}  // namespace HWY_NAMESPACE
}  // namespace fastfeed
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace fastfeed {

HWY_EXPORT(add_noise);

void noise(Image& image, double sigma, int64_t offset, const int16_t* steps, int64_t length, int per_unit) {
  const float scale = float(sigma / per_unit);
  uint8_t* at = image.at;
  size_t rest = image.bytes(), from = size_t(offset) % size_t(length);
  while (rest) {
    const size_t piece = std::min(rest, size_t(length) - from);
    HWY_DYNAMIC_DISPATCH(add_noise)(at, steps + from, scale, piece);
    at += piece, rest -= piece, from = 0;
  }
}

}  // namespace fastfeed
#endif
