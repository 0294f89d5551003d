// Vectors of pixels for warps.cpp. Included for each instruction set in turn, hence no #pragma once.
#if defined(FASTFEED_WARP_VECTORS) == defined(HWY_TARGET_TOGGLE)
#ifdef FASTFEED_WARP_VECTORS
#undef FASTFEED_WARP_VECTORS
#else
#define FASTFEED_WARP_VECTORS
#endif

#include <hwy/highway.h>

#include <cstdint>
#include <cstring>

HWY_BEFORE_NAMESPACE();
namespace fastfeed {
namespace HWY_NAMESPACE {
namespace {
namespace hn = hwy::HWY_NAMESPACE;

constexpr int kGroup = 16;  // columns that OpenCV computes at once, and the most lanes used here

using F = hn::CappedTag<float, kGroup>;
using I = hn::RebindToSigned<F>;
using U = hn::RebindToUnsigned<F>;
using Bytes = hn::Repartition<uint8_t, F>;
using VF = hn::Vec<F>;
using VI = hn::Vec<I>;
using VU = hn::Vec<U>;

// Added to a float from -2^22 to 2^22, this rounds it to the nearest integer, ties to even: the sum's bits are
// kMiddleBits plus that integer. As integers, the bits of sums beyond that range compare as lower or higher.
constexpr float kMiddle = 12582912.0f;
constexpr int32_t kMiddleBits = 0x4B400000;
// The same for floats from 0 to 2^23; the lowest 23 bits are the integer.
constexpr float kUnits = 8388608.0f;

#if !HWY_NATIVE_FMA
// a * b + c, rounded once.
HWY_INLINE float fused(float a, float b, float c) {
  const double product = double(a) * b;  // exact
  double sum = product + c;
  uint64_t bits;
  memcpy(&bits, &sum, sizeof bits);
  if ((bits & 0x1FFFFFFF) == 0x10000000) {  // halfway between two floats, but perhaps only after this rounding
    const double part = sum - product, error = (product - (sum - part)) + (c - part);
    if (error != 0) bits += (error > 0) == (sum > 0) ? 1 : -1;
    memcpy(&sum, &bits, sizeof bits);
  }
  return float(sum);
}
#endif

// a * b + c, rounded once: by an instruction or, much more slowly, by software.
HWY_INLINE VF fused(VF a, VF b, VF c) {
#if HWY_NATIVE_FMA
  return hn::MulAdd(a, b, c);
#else
  const F f;
  HWY_ALIGN float as[kGroup], bs[kGroup], cs[kGroup];
  hn::Store(a, f, as);
  hn::Store(b, f, bs);
  hn::Store(c, f, cs);
  for (size_t i = 0; i < hn::Lanes(f); ++i) as[i] = fused(as[i], bs[i], cs[i]);
  return hn::Load(f, as);
#endif
}

HWY_INLINE uint32_t bits(hn::Mask<I> mask) {
  uint8_t bytes[8] = {};
  hn::StoreMaskBits(I(), mask, bytes);
  return uint32_t(bytes[0]) | uint32_t(bytes[1]) << 8;
}

template <int kByte>
HWY_INLINE VU byte(VU v) {
  if constexpr (kByte == 0) {
    return hn::And(v, hn::Set(U(), 255u));
  } else if constexpr (kByte == 3) {
    return hn::ShiftRight<24>(v);
  } else {
#if HWY_TARGET == HWY_SCALAR
    return hn::And(hn::ShiftRight<8 * kByte>(v), hn::Set(U(), 255u));
#else
    constexpr uint8_t z = 0x80, k = kByte;
    HWY_ALIGN static constexpr uint8_t kPlaces[16] = {k, z, z, z, k + 4, z, z, z, k + 8, z, z, z, k + 12, z, z, z};
    const Bytes b;
    return hn::BitCast(U(), hn::TableLookupBytesOr0(hn::BitCast(b, v), hn::LoadDup128(b, kPlaces)));
#endif
  }
}

// Interpolates between two pixels above and two below. The level is in the lowest byte.
HWY_INLINE VU blend(VF across, VF down, VU p0, VU p1, VU p2, VU p3) {
  const I i;
  const F f;
  const VF f0 = hn::ConvertTo(f, hn::BitCast(i, p0)), f1 = hn::ConvertTo(f, hn::BitCast(i, p1));
  const VF f2 = hn::ConvertTo(f, hn::BitCast(i, p2)), f3 = hn::ConvertTo(f, hn::BitCast(i, p3));
  const VF above = fused(across, hn::Sub(f1, f0), f0), below = fused(across, hn::Sub(f3, f2), f2);
  return hn::BitCast(U(), hn::Add(fused(down, hn::Sub(below, above), above), hn::Set(f, kUnits)));
}

// The low and the high halves of as many 64-bit numbers as there are lanes.
HWY_INLINE void halves(const uint64_t* numbers, VU& low, VU& high) {
  const U u;
#if HWY_TARGET == HWY_SCALAR
  low = hn::Set(u, uint32_t(*numbers));
  high = hn::Set(u, uint32_t(*numbers >> 32));
#else
  const hn::Repartition<uint64_t, U> wide;
  const VU first = hn::BitCast(u, hn::Load(wide, numbers));
  const VU second = hn::BitCast(u, hn::Load(wide, numbers + hn::Lanes(wide)));
  low = hn::ConcatEven(u, second, first);
  high = hn::ConcatOdd(u, second, first);
#endif
}

// The lowest byte of every lane.
HWY_INLINE void store_gray(VU v, uint8_t* out) {
  const hn::Rebind<uint8_t, U> narrow;
  hn::StoreU(hn::U8FromU32(hn::And(v, hn::Set(U(), 255u))), narrow, out);
}

// The lowest three bytes of every lane. Also writes as many bytes after them as there are lanes.
HWY_INLINE void store_rgb(VU v, uint8_t* out) {
#if HWY_TARGET == HWY_SCALAR
  const uint32_t pixel = hn::GetLane(v);
  memcpy(out, &pixel, 4);
#else
  HWY_ALIGN static constexpr uint8_t kThree[16] = {0, 1, 2, 4, 5, 6, 8, 9, 10, 12, 13, 14, 3, 7, 11, 15};
  HWY_ALIGN static constexpr int32_t kBlocks[2][16] = {{0, 1, 2, 4, 5, 6, 3, 7},
                                                       {0, 1, 2, 4, 5, 6, 8, 9, 10, 12, 13, 14, 3, 7, 11, 15}};
  const Bytes b;
  const U u;
  VU packed = hn::BitCast(u, hn::TableLookupBytes(hn::BitCast(b, v), hn::LoadDup128(b, kThree)));
  if (hn::Lanes(u) > 4)  // from three numbers in each block of 128 bits
    packed = hn::TableLookupLanes(packed, hn::SetTableIndices(u, kBlocks[hn::Lanes(u) == 16]));
  hn::StoreU(hn::BitCast(b, packed), b, out);
#endif
}

}  // namespace
}  // namespace HWY_NAMESPACE
}  // namespace fastfeed
HWY_AFTER_NAMESPACE();

#endif
