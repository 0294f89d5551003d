// JPEG's round trip of blocks of 8 x 8 bytes: forward DCT, quantization and back, with the integer arithmetic of
// libjpeg's "islow" methods. Included once per SIMD target.
#if defined(FASTFEED_OPS_JPEG_BLOCKS_INL_H) == defined(HWY_TARGET_TOGGLE)
#ifdef FASTFEED_OPS_JPEG_BLOCKS_INL_H
#undef FASTFEED_OPS_JPEG_BLOCKS_INL_H
#else
#define FASTFEED_OPS_JPEG_BLOCKS_INL_H
#endif

#include <hwy/highway.h>

#include "ops/jpeg_tables.h"

HWY_BEFORE_NAMESPACE();
namespace fastfeed {
namespace HWY_NAMESPACE {
namespace {
namespace hn = hwy::HWY_NAMESPACE;

// Constants of the DCT of Loeffler, Ligtenberg and Moschytz, times 2**13.
constexpr int k0298 = 2446, k0390 = 3196, k0541 = 4433, k0765 = 6270, k0899 = 7373, k1175 = 9633, k1501 = 12299;
constexpr int k1847 = 15137, k1961 = 16069, k2053 = 16819, k2562 = 20995, k3072 = 25172;
constexpr int kConstBits = 13, kPass1Bits = 2;

#if HWY_TARGET == HWY_SCALAR

// One dimension of eight numbers, `step` apart.
void forward_plain(int* at, int step, bool first) {
  int s[4], d[4];
  for (int i = 0; i < 4; ++i) s[i] = at[i * step] + at[(7 - i) * step], d[i] = at[i * step] - at[(7 - i) * step];
  const int shift = first ? kConstBits - kPass1Bits : kConstBits + kPass1Bits, half = 1 << (shift - 1);
  const int sum = s[0] + s[3] + s[1] + s[2], difference = s[0] + s[3] - s[1] - s[2];
  at[0] = first ? sum * 4 : (sum + 2) >> 2;
  at[4 * step] = first ? difference * 4 : (difference + 2) >> 2;
  const int t13 = s[0] - s[3], t12 = s[1] - s[2], z1 = (t12 + t13) * k0541;
  at[2 * step] = (z1 + t13 * k0765 + half) >> shift;
  at[6 * step] = (z1 - t12 * k1847 + half) >> shift;
  const int z5 = (d[3] + d[1] + d[2] + d[0]) * k1175;
  const int z3 = z5 - (d[3] + d[1]) * k1961, z4 = z5 - (d[2] + d[0]) * k0390;
  const int za = -(d[3] + d[0]) * k0899, zb = -(d[2] + d[1]) * k2562;
  at[7 * step] = (d[3] * k0298 + za + z3 + half) >> shift;
  at[5 * step] = (d[2] * k2053 + zb + z4 + half) >> shift;
  at[3 * step] = (d[1] * k3072 + zb + z3 + half) >> shift;
  at[1 * step] = (d[0] * k1501 + za + z4 + half) >> shift;
}

void inverse_plain(int* at, int step, int shift) {
  const int half = 1 << (shift - 1), z1 = (at[2 * step] + at[6 * step]) * k0541;
  const int t2 = z1 - at[6 * step] * k1847, t3 = z1 + at[2 * step] * k0765;
  const int t0 = (at[0] + at[4 * step]) * (1 << kConstBits), t1 = (at[0] - at[4 * step]) * (1 << kConstBits);
  const int even[4] = {t0 + t3, t1 + t2, t1 - t2, t0 - t3};
  const int d0 = at[7 * step], d1 = at[5 * step], d2 = at[3 * step], d3 = at[step];
  const int z5 = (d0 + d2 + d1 + d3) * k1175, z3 = z5 - (d0 + d2) * k1961, z4 = z5 - (d1 + d3) * k0390;
  const int za = -(d0 + d3) * k0899, zb = -(d1 + d2) * k2562;
  const int odd[4] = {d3 * k1501 + za + z4, d2 * k3072 + zb + z3, d1 * k2053 + zb + z4, d0 * k0298 + za + z3};
  for (int i = 0; i < 4; ++i) {
    at[i * step] = (even[i] + odd[i] + half) >> shift;
    at[(7 - i) * step] = (even[i] - odd[i] + half) >> shift;
  }
}

void compress_block(uint8_t* at, size_t stride, const JpegTable& table) {
  int block[64];
  for (size_t i = 0; i < 64; ++i) block[i] = at[i / 8 * stride + i % 8] - 128;
  for (int i = 0; i < 8; ++i) forward_plain(block + 8 * i, 1, true);
  for (int i = 0; i < 8; ++i) forward_plain(block + i, 8, false);
  for (int i = 0; i < 64; ++i) {
    const int step = table.step[i], size = (block[i] < 0 ? -block[i] : block[i]) + 4 * step;
    const int level = size / (8 * step) * step;
    block[i] = block[i] < 0 ? -level : level;
  }
  for (int i = 0; i < 8; ++i) inverse_plain(block + i, 8, kConstBits - kPass1Bits);
  for (int i = 0; i < 8; ++i) inverse_plain(block + 8 * i, 1, kConstBits + kPass1Bits + 3);
  for (size_t i = 0; i < 64; ++i) {
    const int value = block[i] + 128;
    at[i / 8 * stride + i % 8] = uint8_t(value < 0 ? 0 : value > 255 ? 255 : value);
  }
}

void compress_blocks(uint8_t* at, size_t stride, int blocks, const JpegTable& table) {
  for (int i = 0; i < blocks; ++i) compress_block(at + 8 * i, stride, table);
}

#else

using BlockWords = hn::ScalableTag<int16_t>;  // the same row of one block per 128 bits
using BlockInts = hn::ScalableTag<int32_t>;
using WordV = hn::Vec<BlockWords>;
using IntV = hn::Vec<BlockInts>;

// 32 bits per word: of the lower and the upper half of each 128 bits.
struct Wide {
  IntV low, high;
};

HWY_INLINE WordV words_of_pair(int first, int second) {
  return hn::BitCast(BlockWords(), hn::Set(BlockInts(), int32_t(uint32_t(uint16_t(first)) | uint32_t(second) << 16)));
}

// a[2 i] * b[2 i] + a[2 i + 1] * b[2 i + 1]
HWY_INLINE IntV pair_sums(WordV a, WordV b) {
  const BlockInts d;
#if HWY_ARCH_X86 && HWY_TARGET != HWY_EMU128
  IntV none = hn::Zero(d);
  return hn::ReorderWidenMulAccumulate(d, a, b, none, none);
#else  // there the instruction adds up others than neighbors
  const auto x = hn::BitCast(d, a), y = hn::BitCast(d, b);
  const auto even = hn::Mul(hn::ShiftRight<16>(hn::ShiftLeft<16>(x)), hn::ShiftRight<16>(hn::ShiftLeft<16>(y)));
  return hn::Add(even, hn::Mul(hn::ShiftRight<16>(x), hn::ShiftRight<16>(y)));
#endif
}

// Two words next to each other, for rotations.
struct Pairs {
  WordV low, high;
  HWY_INLINE Pairs(WordV a, WordV b)
      : low(hn::InterleaveLower(BlockWords(), a, b)), high(hn::InterleaveUpper(BlockWords(), a, b)) {}
  // a * first + b * second
  HWY_INLINE Wide times(int first, int second) const {
    const WordV factors = words_of_pair(first, second);
    return {pair_sums(low, factors), pair_sums(high, factors)};
  }
};

HWY_INLINE Wide operator+(Wide a, Wide b) { return {hn::Add(a.low, b.low), hn::Add(a.high, b.high)}; }
HWY_INLINE Wide operator-(Wide a, Wide b) { return {hn::Sub(a.low, b.low), hn::Sub(a.high, b.high)}; }

template <int kShift>
HWY_INLINE WordV descaled(Wide v) {
  const auto half = hn::Set(BlockInts(), 1 << (kShift - 1));
  return hn::ReorderDemote2To(BlockWords(), hn::ShiftRight<kShift>(hn::Add(v.low, half)),
                              hn::ShiftRight<kShift>(hn::Add(v.high, half)));
}

template <bool kFirst>
HWY_INLINE void forward_dct(WordV (&v)[8]) {
  constexpr int kShift = kFirst ? kConstBits - kPass1Bits : kConstBits + kPass1Bits;
  const auto t0 = hn::Add(v[0], v[7]), t1 = hn::Add(v[1], v[6]), t2 = hn::Add(v[2], v[5]), t3 = hn::Add(v[3], v[4]);
  const auto t7 = hn::Sub(v[0], v[7]), t6 = hn::Sub(v[1], v[6]), t5 = hn::Sub(v[2], v[5]), t4 = hn::Sub(v[3], v[4]);
  const auto t10 = hn::Add(t0, t3), t11 = hn::Add(t1, t2);
  if (kFirst) {
    v[0] = hn::ShiftLeft<kPass1Bits>(hn::Add(t10, t11));
    v[4] = hn::ShiftLeft<kPass1Bits>(hn::Sub(t10, t11));
  } else {
    const auto half = hn::Set(BlockWords(), 1 << (kPass1Bits - 1));
    v[0] = hn::ShiftRight<kPass1Bits>(hn::Add(hn::Add(t10, t11), half));
    v[4] = hn::ShiftRight<kPass1Bits>(hn::Add(hn::Sub(t10, t11), half));
  }
  const Pairs even(hn::Sub(t0, t3), hn::Sub(t1, t2));
  v[2] = descaled<kShift>(even.times(k0541 + k0765, k0541));
  v[6] = descaled<kShift>(even.times(k0541, k0541 - k1847));
  const Pairs z(hn::Add(t4, t6), hn::Add(t5, t7)), outer(t4, t7), inner(t5, t6);
  const Wide z3 = z.times(k1175 - k1961, k1175), z4 = z.times(k1175, k1175 - k0390);
  v[7] = descaled<kShift>(outer.times(k0298 - k0899, -k0899) + z3);
  v[1] = descaled<kShift>(outer.times(-k0899, k1501 - k0899) + z4);
  v[5] = descaled<kShift>(inner.times(k2053 - k2562, -k2562) + z4);
  v[3] = descaled<kShift>(inner.times(-k2562, k3072 - k2562) + z3);
}

// Times 2**13.
HWY_INLINE Wide scaled(WordV v) {
  const BlockWords w;
  const auto zero = hn::Zero(w);
  return {hn::ShiftRight<16 - kConstBits>(hn::BitCast(BlockInts(), hn::InterleaveLower(w, zero, v))),
          hn::ShiftRight<16 - kConstBits>(hn::BitCast(BlockInts(), hn::InterleaveUpper(w, zero, v)))};
}

template <int kShift>
HWY_INLINE void inverse_dct(WordV (&v)[8]) {
  const Pairs even(v[2], v[6]);
  const Wide t3 = even.times(k0541 + k0765, k0541), t2 = even.times(k0541, k0541 - k1847);
  const Wide t0 = scaled(hn::Add(v[0], v[4])), t1 = scaled(hn::Sub(v[0], v[4]));
  const Pairs z(hn::Add(v[7], v[3]), hn::Add(v[5], v[1])), outer(v[7], v[1]), inner(v[5], v[3]);
  const Wide z3 = z.times(k1175 - k1961, k1175), z4 = z.times(k1175, k1175 - k0390);
  const Wide o0 = outer.times(-k0899, k1501 - k0899) + z4, o3 = outer.times(k0298 - k0899, -k0899) + z3;
  v[0] = descaled<kShift>(t0 + t3 + o0);
  v[7] = descaled<kShift>(t0 + t3 - o0);
  v[3] = descaled<kShift>(t0 - t3 + o3);
  v[4] = descaled<kShift>(t0 - t3 - o3);
  const Wide o2 = inner.times(k2053 - k2562, -k2562) + z4, o1 = inner.times(-k2562, k3072 - k2562) + z3;
  v[1] = descaled<kShift>(t1 + t2 + o1);
  v[6] = descaled<kShift>(t1 + t2 - o1);
  v[2] = descaled<kShift>(t1 - t2 + o2);
  v[5] = descaled<kShift>(t1 - t2 - o2);
}

// Of each block: three perfect shuffles exchange the three bits of the row with those of the column.
HWY_INLINE void transpose(WordV (&v)[8]) {
  const BlockWords w;
  for (int round = 0; round < 3; ++round) {
    WordV a[8];
    for (int k = 0; k < 4; ++k) {
      a[2 * k] = hn::InterleaveLower(w, v[k], v[k + 4]);
      a[2 * k + 1] = hn::InterleaveUpper(w, v[k], v[k + 4]);
    }
    for (int k = 0; k < 8; ++k) v[k] = a[k];
  }
}

// Divided by 8 steps, rounded, and times a step again.
HWY_INLINE WordV quantized(WordV v, const JpegTable& table, int row) {
  const BlockWords w;
  const hn::RebindToUnsigned<BlockWords> u;
  const auto load = [&](const uint16_t* values) { return hn::LoadDup128(u, values + 8 * row); };
  const auto size = hn::Add(hn::BitCast(u, hn::Abs(v)), load(table.half));
  const auto levels = hn::MulHigh(hn::MulHigh(size, load(table.reciprocal)), load(table.scale));
  const auto made = hn::BitCast(w, hn::Mul(levels, load(table.step))), sign = hn::ShiftRight<15>(v);
  return hn::Sub(hn::Xor(made, sign), sign);
}

// `blocks` blocks side by side, in place; may change bytes up to a vector beyond them.
void compress_blocks(uint8_t* at, size_t stride, int blocks, const JpegTable& table) {
  const BlockWords w;
  const hn::Rebind<uint8_t, BlockWords> b;
  const auto center = hn::Set(w, 128);
  const int at_once = int(hn::Lanes(w) / 8);
  for (int i = 0; i < blocks; i += at_once, at += hn::Lanes(w)) {
    WordV v[8];
    for (size_t k = 0; k < 8; ++k) v[k] = hn::Sub(hn::PromoteTo(w, hn::LoadU(b, at + k * stride)), center);
    transpose(v);
    forward_dct<true>(v);
    transpose(v);
    forward_dct<false>(v);
    for (int k = 0; k < 8; ++k) v[k] = quantized(v[k], table, k);
    inverse_dct<kConstBits - kPass1Bits>(v);
    transpose(v);
    inverse_dct<kConstBits + kPass1Bits + 3>(v);
    transpose(v);
    for (size_t k = 0; k < 8; ++k) hn::StoreU(hn::DemoteTo(b, hn::SaturatedAdd(v[k], center)), b, at + k * stride);
  }
}
#endif

}  // namespace
}  // namespace HWY_NAMESPACE
}  // namespace fastfeed
HWY_AFTER_NAMESPACE();
#endif
