#include "blend.h"

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "ops/blend.cpp"
#include <hwy/foreach_target.h>
#include <hwy/highway.h>

#include "floats-inl.h"

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

void blend_byte_rows(const uint8_t* first, const uint8_t* second, float share, float rest, uint8_t* out, size_t count) {
  const Floats f;
  const FloatV a = hn::Set(f, share), b = hn::Set(f, rest);
  in_blocks(
      count, [&](size_t i) { store_bytes(blended(first + i, second + i, a, b), out + i); },
      [&](size_t i, size_t n) {
        uint8_t in[2][HWY_MAX_BYTES] = {}, made[HWY_MAX_BYTES];
        std::memcpy(in[0], first + i, n), std::memcpy(in[1], second + i, n);
        store_bytes(blended(in[0], in[1], a, b), made);
        std::memcpy(out + i, made, n);
      });
}

void blend_float_rows(const float* first, const float* second, float share, float rest, float* out, size_t count) {
  const Floats f;
  const FloatV a = hn::Set(f, share), b = hn::Set(f, rest);
  const auto one = [&](const float* x, const float* y, float* to) {
    hn::StoreU(fused(hn::LoadU(f, x), a, hn::Mul(hn::LoadU(f, y), b)), f, to);
  };
  size_t i = 0;
  for (; i + hn::Lanes(f) <= count; i += hn::Lanes(f)) one(first + i, second + i, out + i);
  if (i == count) return;
  constexpr size_t kLanes = HWY_MAX_BYTES / sizeof(float);
  float in[2][kLanes] = {}, made[kLanes];
  std::memcpy(in[0], first + i, (count - i) * sizeof(float)), std::memcpy(in[1], second + i, (count - i) * sizeof(float));
  one(in[0], in[1], made);
  std::memcpy(out + i, made, (count - i) * sizeof(float));
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
HWY_EXPORT(blend_float_rows);
HWY_EXPORT(weigh);

namespace {
constexpr size_t kLongest = 64;  // bytes of a vector, of any target
}

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
  HWY_DYNAMIC_DISPATCH(blend_byte_rows)(first, second, float(share), float(1 - share), out, count);
}

void blend_floats(const float* first, const float* second, double share, float* out, size_t count) {
  HWY_DYNAMIC_DISPATCH(blend_float_rows)(first, second, float(share), float(1 - share), out, count);
}

}  // namespace fastfeed
#endif
