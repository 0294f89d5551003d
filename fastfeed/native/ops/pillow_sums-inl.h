// Sums of bytes times the weights of pillow_weights.h. Included once per SIMD target.
#if defined(FASTFEED_OPS_PILLOW_SUMS_INL_H) == defined(HWY_TARGET_TOGGLE)
#ifdef FASTFEED_OPS_PILLOW_SUMS_INL_H
#undef FASTFEED_OPS_PILLOW_SUMS_INL_H
#else
#define FASTFEED_OPS_PILLOW_SUMS_INL_H
#endif

#include <hwy/highway.h>

#include "ops/pillow_weights.h"

// The vectors rely on x86's product sums, and on blocks of 16 bytes. Other targets have plain loops.
#undef FASTFEED_PILLOW_BLOCKS
#if HWY_ARCH_X86 && HWY_TARGET != HWY_SCALAR && HWY_TARGET != HWY_EMU128
#define FASTFEED_PILLOW_BLOCKS 1
#else
#define FASTFEED_PILLOW_BLOCKS 0
#endif

HWY_BEFORE_NAMESPACE();
namespace fastfeed {
namespace HWY_NAMESPACE {
namespace {
namespace hn = hwy::HWY_NAMESPACE;

constexpr int32_t kHalf = 1 << (Weights::kBits - 1);

#if FASTFEED_PILLOW_BLOCKS

const hn::ScalableTag<uint8_t> d8;
const hn::ScalableTag<uint16_t> d16;
const hn::ScalableTag<int32_t> d32;
using V8 = hn::Vec<decltype(d8)>;
using V32 = hn::Vec<decltype(d32)>;
constexpr size_t kBytes = HWY_MAX_BYTES;
constexpr int kBlocks = int(kBytes / 16);

// A weight has 24 bits. Products of a byte and 24 bits are slow, so it is taken apart into digits that have products of
// four (or two) neighbors in one instruction; all sums are exact modulo 2^32, and so is what they add up to.
#if HWY_TARGET == HWY_AVX3_DL

constexpr int kWords = 3;

// Four weights as 3 x 4 signed bytes, the lowest first.
inline void encode(const int32_t* weight, int32_t* words, size_t step) {
  uint32_t digits[4];  // a byte each
  for (int k = 0; k < 4; ++k) digits[k] = (uint32_t(weight[k]) + 0x808080u) ^ 0x808080u;
  for (int digit = 0; digit < 3; ++digit) {
    uint32_t word = 0;
    for (int k = 0; k < 4; ++k) word |= (digits[k] >> (8 * digit) & 0xFF) << (8 * k);
    words[size_t(digit) * step] = int32_t(word);
  }
}

// One vector of each word. No arrays in here, and no lambdas around it: GCC leaves those in memory.
struct Words {
  V32 low, middle, high;
};
HWY_INLINE Words set(const int32_t* at) { return {hn::Set(d32, at[0]), hn::Set(d32, at[1]), hn::Set(d32, at[2])}; }
HWY_INLINE Words load(const int32_t* at) {
  return {hn::LoadU(d32, at), hn::LoadU(d32, at + 16), hn::LoadU(d32, at + 32)};
}
HWY_INLINE Words load_block(const int32_t* at) {
  return {hn::LoadDup128(d32, at), hn::LoadDup128(d32, at + 4), hn::LoadDup128(d32, at + 8)};
}

struct Sum {
  V32 low, middle, high;
  HWY_INLINE explicit Sum(int32_t start) : low(hn::Set(d32, start)), middle(hn::Zero(d32)), high(hn::Zero(d32)) {}

  // Each lane holds four neighbors, and their weights.
  HWY_INLINE void add(V8 taps, const Words& words) {
    add(low, taps, words.low);
    add(middle, taps, words.middle);
    add(high, taps, words.high);
  }
  HWY_INLINE V32 total() const {
    return hn::Add(hn::Add(low, hn::ShiftLeft<8>(middle)), hn::ShiftLeft<16>(high));
  }

 private:
  static HWY_INLINE void add(V32& sum, V8 taps, V32 weights) {
    // VNNI belongs to this target, but the attribute for it does not: there is no intrinsic to call
    asm("vpdpbusd %2, %1, %0" : "+v"(sum.raw) : "v"(taps.raw), "v"(weights.raw));
  }
};

#else

constexpr int kWords = 4;

// Four weights as pairs of 16 bits: the low 15 bits of weights 0 and 2, their high ones, then those of 1 and 3.
inline void encode(const int32_t* weight, int32_t* words, size_t step) {
  for (int odd = 0; odd < 2; ++odd) {
    const int32_t a = weight[odd], b = weight[odd + 2];
    words[size_t(2 * odd) * step] = int32_t(uint32_t(a & 0x7FFF) | uint32_t(b & 0x7FFF) << 16);
    words[size_t(2 * odd + 1) * step] = int32_t(uint32_t(uint16_t(a >> 15)) | uint32_t(b >> 15) << 16);
  }
}

struct Words {
  V32 even_low, even_high, odd_low, odd_high;
};
HWY_INLINE Words set(const int32_t* at) {
  return {hn::Set(d32, at[0]), hn::Set(d32, at[1]), hn::Set(d32, at[2]), hn::Set(d32, at[3])};
}
HWY_INLINE Words load_block(const int32_t* at) {
  return {hn::LoadDup128(d32, at), hn::LoadDup128(d32, at + 4), hn::LoadDup128(d32, at + 8),
          hn::LoadDup128(d32, at + 12)};
}

struct Sum {
  V32 low, high;
  HWY_INLINE explicit Sum(int32_t start) : low(hn::Set(d32, start)), high(hn::Zero(d32)) {}

  HWY_INLINE void add(V8 taps, const Words& words) {
    const hn::Repartition<int16_t, decltype(d8)> d;
    const auto pairs = hn::BitCast(d16, taps);
    const auto even = hn::BitCast(d, hn::And(pairs, hn::Set(d16, 0x00FF)));
    const auto odd = hn::BitCast(d, hn::ShiftRight<8>(pairs));
    V32 unused = hn::Zero(d32);
    low = hn::ReorderWidenMulAccumulate(d32, even, hn::BitCast(d, words.even_low), low, unused);
    high = hn::ReorderWidenMulAccumulate(d32, even, hn::BitCast(d, words.even_high), high, unused);
    low = hn::ReorderWidenMulAccumulate(d32, odd, hn::BitCast(d, words.odd_low), low, unused);
    high = hn::ReorderWidenMulAccumulate(d32, odd, hn::BitCast(d, words.odd_high), high, unused);
  }
  HWY_INLINE V32 total() const { return hn::Add(low, hn::ShiftLeft<15>(high)); }
};

#endif

// The sums as bytes: block by block, those of a, b, c and d one after the other.
HWY_INLINE V8 packed(V32 a, V32 b, V32 c, V32 d) {
  a = hn::ShiftRight<Weights::kBits>(a), b = hn::ShiftRight<Weights::kBits>(b);
  c = hn::ShiftRight<Weights::kBits>(c), d = hn::ShiftRight<Weights::kBits>(d);
#if HWY_MAX_BYTES == 64
  return V8{_mm512_packus_epi16(_mm512_packs_epi32(a.raw, b.raw), _mm512_packs_epi32(c.raw, d.raw))};
#elif HWY_MAX_BYTES == 32
  return V8{_mm256_packus_epi16(_mm256_packs_epi32(a.raw, b.raw), _mm256_packs_epi32(c.raw, d.raw))};
#else
  return V8{_mm_packus_epi16(_mm_packs_epi32(a.raw, b.raw), _mm_packs_epi32(c.raw, d.raw))};
#endif
}

HWY_INLINE V8 packed(const Sum& a, const Sum& b, const Sum& c, const Sum& d) {
  return packed(a.total(), b.total(), c.total(), d.total());
}

#else

inline uint8_t rounded(int32_t total) {
  const int32_t level = (total + kHalf) >> Weights::kBits;
  return uint8_t(level < 0 ? 0 : level > 255 ? 255 : level);
}

#endif

}  // namespace
}  // namespace HWY_NAMESPACE
}  // namespace fastfeed
HWY_AFTER_NAMESPACE();
#endif
