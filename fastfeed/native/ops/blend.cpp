#include "ops/blend.h"

#include <cmath>
#include <cstring>

#ifndef FASTFEED_OPS_BLEND_STEPS
#define FASTFEED_OPS_BLEND_STEPS
namespace fastfeed {
namespace {

// The share of a difference of two bytes: (difference * whole + (difference * part >> 16) + 64) >> 7.
struct Steps {
  int16_t whole, part;
  bool exact;  // the same bytes as by floats, for all pairs of bytes
};

}  // namespace
}  // namespace fastfeed
#endif

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "ops/blend.cpp"
#include <hwy/foreach_target.h>
#include <hwy/highway.h>

#include "ops/floats-inl.h"

HWY_BEFORE_NAMESPACE();
namespace fastfeed {
namespace HWY_NAMESPACE {
namespace {

// Calls block(i) for blocks of quad_bytes() at i, or tail(i, rest) where fewer are left.
template <class Block, class Tail>
HWY_INLINE void in_blocks(size_t count, Block block, Tail tail) {
  size_t i = 0;
  for (; i + quad_bytes() <= count; i += quad_bytes()) block(i);
  if (i < count) tail(i, count - i);
}

// OpenCV's addWeighted: both shares as float32, the second product rounded, the first not.
HWY_INLINE Quad blended(const uint8_t* first, const uint8_t* second, FloatV share, FloatV rest) {
  Quad a = floats_of_bytes(first);
  const Quad b = floats_of_bytes(second);
  for (int k = 0; k < 4; ++k) a.v[k] = fused(a.v[k], share, hn::Mul(b.v[k], rest));
  return a;
}

#if HWY_TARGET != HWY_SCALAR
// As blended(), where Steps are exact: second + the rounded share of the difference, in 16 bits.
HWY_INLINE hn::Vec<Words> stepped(hn::Vec<Words> first, hn::Vec<Words> second, hn::Vec<Words> whole,
                                  hn::Vec<Words> part) {
  const auto difference = hn::Sub(first, second);
  const auto step = hn::Add(hn::Mul(difference, whole), hn::MulHigh(difference, part));
  return hn::Add(second, hn::MulFixedPoint15(step, hn::Set(Words(), 256)));  // (step + 64) >> 7
}

HWY_INLINE void step_block(const uint8_t* first, const uint8_t* second, Steps steps, uint8_t* out) {
  const Words w;
  const UnsignedWords u;
  const auto whole = hn::Set(w, steps.whole), part = hn::Set(w, steps.part);
  const auto a = hn::BitCast(u, hn::LoadU(Bytes(), first)), b = hn::BitCast(u, hn::LoadU(Bytes(), second));
  const auto low = hn::Set(u, 255);
  const auto even = stepped(hn::BitCast(w, hn::And(a, low)), hn::BitCast(w, hn::And(b, low)), whole, part);
  const auto odd = stepped(hn::BitCast(w, hn::ShiftRight<8>(a)), hn::BitCast(w, hn::ShiftRight<8>(b)), whole, part);
  hn::StoreU(bytes_of_words(even, odd), Bytes(), out);
}
#endif

template <class Block>
HWY_INLINE void blend_blocks(const uint8_t* first, const uint8_t* second, uint8_t* out, size_t count, Block block) {
  in_blocks(
      count, [&](size_t i) { block(first + i, second + i, out + i); },
      [&](size_t i, size_t n) {
        uint8_t in[2][HWY_MAX_BYTES] = {}, made[HWY_MAX_BYTES];
        std::memcpy(in[0], first + i, n), std::memcpy(in[1], second + i, n);
        block(in[0], in[1], made);
        std::memcpy(out + i, made, n);
      });
}

void blend_byte_rows(const uint8_t* first, const uint8_t* second, float share, float rest, Steps steps, uint8_t* out,
                     size_t count) {
#if HWY_TARGET != HWY_SCALAR
  if (steps.exact)
    return blend_blocks(first, second, out, count, [steps](const uint8_t* x, const uint8_t* y, uint8_t* to) {
      step_block(x, y, steps, to);
    });
#endif
  (void)steps;
  const FloatV a = hn::Set(Floats(), share), b = hn::Set(Floats(), rest);
  blend_blocks(first, second, out, count, [a, b](const uint8_t* x, const uint8_t* y, uint8_t* to) {
    store_bytes(blended(x, y, a, b), to);
  });
}

// Of one version or two, the second product rounded and the first not.
HWY_INLINE Quad pair_at(const uint8_t* const* versions, const float* shares, int count, size_t at) {
  const Floats f;
  Quad pair = floats_of_bytes(versions[0] + at);
  const FloatV share = hn::Set(f, shares[0]);
  if (count == 1) {
    for (int k = 0; k < 4; ++k) pair.v[k] = hn::Mul(pair.v[k], share);
    return pair;
  }
  const Quad other = floats_of_bytes(versions[1] + at);
  const FloatV rest = hn::Set(f, shares[1]);
  for (int k = 0; k < 4; ++k) pair.v[k] = fused(pair.v[k], share, hn::Mul(other.v[k], rest));
  return pair;
}

// Two versions at a time: the order of the additions is part of the result.
HWY_INLINE Quad weighted(const uint8_t* const* versions, const float* shares, int count, size_t at) {
  Quad total = pair_at(versions, shares, count, at);
  for (int j = 2; j < count; j += 2) {
    const Quad pair = pair_at(versions + j, shares + j, count - j, at);
    for (int k = 0; k < 4; ++k) total.v[k] = hn::Add(total.v[k], pair.v[k]);
  }
  return total;
}

void weigh(const uint8_t* const* versions, const float* shares, int count, uint8_t* out, size_t bytes, uint8_t* tails,
           const uint8_t** ends) {
  in_blocks(
      bytes, [&](size_t i) { store_bytes(weighted(versions, shares, count, i), out + i); },
      [&](size_t i, size_t n) {
        for (int k = 0; k < count; ++k) {
          ends[k] = tails + size_t(k) * HWY_MAX_BYTES;
          std::memset(tails + size_t(k) * HWY_MAX_BYTES, 0, HWY_MAX_BYTES);
          std::memcpy(tails + size_t(k) * HWY_MAX_BYTES, versions[k] + i, n);
        }
        uint8_t made[HWY_MAX_BYTES];
        store_bytes(weighted(ends, shares, count, 0), made);
        std::memcpy(out + i, made, n);
      });
}

}  // namespace
}  // namespace HWY_NAMESPACE
}  // namespace fastfeed
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace fastfeed {

HWY_EXPORT(blend_byte_rows);
HWY_EXPORT(weigh);

namespace {
constexpr size_t kLongest = 64;  // bytes of a vector, of any target

// The shares that are rounded by floats are within kFloats of the exact ones. So where no difference's share is closer
// to a tie than that, floats round as if they were exact; one in 50 random shares is not so, nor is 1/2.
Steps steps_of(double share) {
  constexpr double kFloats = 1.0 / 32768;
  if (!(share >= 0 && share <= 1)) return {0, 0, false};
  const int32_t scaled = int32_t(std::lround(share * (1 << 23))), whole = (scaled + (1 << 15)) >> 16;
  const int32_t part = scaled - (whole << 16);
  bool exact = true;
  for (int difference = -255; difference <= 255; ++difference) {
    const double step = difference * share, level = std::floor(step + 0.5), fraction = step + 0.5 - level;
    const int made = (difference * whole + ((difference * part) >> 16) + 64) >> 7;
    exact &= (fraction > kFloats) & (fraction < 1 - kFloats) & (made == int(level));
  }
  return {int16_t(whole), int16_t(part), exact};
}

}  // namespace

void weighted_sum(Image& image, const uint8_t* const* versions, const double* shares, int count, Scratch& scratch) {
  if (count <= 0) return;
  Scratch::Frame frame(scratch);
  float* weights = frame.take<float>(size_t(count));
  for (int k = 0; k < count; ++k) weights[k] = float(shares[k]);
  uint8_t* tails = frame.bytes(size_t(count) * kLongest);
  const uint8_t** ends = frame.take<const uint8_t*>(size_t(count));
  HWY_DYNAMIC_DISPATCH(weigh)(versions, weights, count, image.at, image.bytes(), tails, ends);
}

void blend_bytes(const uint8_t* first, const uint8_t* second, double share, uint8_t* out, size_t count) {
  HWY_DYNAMIC_DISPATCH(blend_byte_rows)(first, second, float(share), float(1 - share), steps_of(share), out, count);
}

}  // namespace fastfeed
#endif
