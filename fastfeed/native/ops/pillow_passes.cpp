#include "pillow_passes.h"

#include <algorithm>
#include <cstring>

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "ops/pillow_passes.cpp"
#include <hwy/foreach_target.h>
#include <hwy/highway.h>

// What follows relies on vectors made of blocks of 16 bytes, and on x86's product sums.
#undef FASTFEED_BLOCKS
#if HWY_ARCH_X86 && HWY_TARGET != HWY_SCALAR && HWY_TARGET != HWY_EMU128
#define FASTFEED_BLOCKS 1
#else
#define FASTFEED_BLOCKS 0
#endif

HWY_BEFORE_NAMESPACE();
namespace fastfeed {
namespace HWY_NAMESPACE {
namespace hn = hwy::HWY_NAMESPACE;

constexpr int32_t kHalf = 1 << (Weights::kBits - 1);

#if FASTFEED_BLOCKS

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

constexpr int kWords = 3, kDigits = 3;

// Four weights as 3 x 4 signed bytes, the lowest first.
inline void encode(const int32_t* weight, int32_t* words, size_t step) {
  for (int digit = 0; digit < 3; ++digit) {
    uint32_t word = 0;
    for (int k = 0; k < 4; ++k) {
      const int32_t low = int8_t(uint8_t(weight[k])), rest = (weight[k] - low) >> 8;
      const int32_t middle = int8_t(uint8_t(rest)), high = (rest - middle) >> 8;
      word |= uint32_t(uint8_t(digit == 0 ? low : digit == 1 ? middle : high)) << (8 * k);
    }
    words[size_t(digit) * step] = int32_t(word);
  }
}

struct Sum {
  V32 digit[kDigits];
  HWY_INLINE void clear() {
    digit[0] = digit[1] = digit[2] = hn::Zero(d32);
  }
  // Each lane holds four neighbors.
  template <class Word>
  HWY_INLINE void add(V8 taps, const Word& word) {
    for (int k = 0; k < 3; ++k) {
      const V32 weights = word(k);
      // VNNI belongs to this target, but the attribute for it does not: there is no intrinsic to call
      asm("vpdpbusd %2, %1, %0" : "+v"(digit[k].raw) : "v"(taps.raw), "v"(weights.raw));
    }
  }
  HWY_INLINE V32 total() const {
    return hn::Add(hn::Add(digit[0], hn::ShiftLeft<8>(digit[1])), hn::ShiftLeft<16>(digit[2]));
  }
};

#else

constexpr int kWords = 4, kDigits = 2;

// Four weights as pairs of 16 bits: the low 15 bits of weights 0 and 2, their high ones, then those of 1 and 3.
inline void encode(const int32_t* weight, int32_t* words, size_t step) {
  for (int odd = 0; odd < 2; ++odd) {
    const int32_t a = weight[odd], b = weight[odd + 2];
    words[size_t(2 * odd) * step] = int32_t(uint32_t(a & 0x7FFF) | uint32_t(b & 0x7FFF) << 16);
    words[size_t(2 * odd + 1) * step] = int32_t(uint32_t(uint16_t(a >> 15)) | uint32_t(b >> 15) << 16);
  }
}

struct Sum {
  V32 digit[kDigits];
  HWY_INLINE void clear() {
    digit[0] = digit[1] = hn::Zero(d32);
  }
  template <class Word>
  HWY_INLINE void add(V8 taps, const Word& word) {
    const hn::Repartition<int16_t, decltype(d8)> d;
    const auto pairs = hn::BitCast(d16, taps);
    const auto even = hn::BitCast(d, hn::And(pairs, hn::Set(d16, 0x00FF)));
    const auto odd = hn::BitCast(d, hn::ShiftRight<8>(pairs));
    V32 unused = hn::Zero(d32);
    digit[0] = hn::ReorderWidenMulAccumulate(d32, even, hn::BitCast(d, word(0)), digit[0], unused);
    digit[1] = hn::ReorderWidenMulAccumulate(d32, even, hn::BitCast(d, word(1)), digit[1], unused);
    digit[0] = hn::ReorderWidenMulAccumulate(d32, odd, hn::BitCast(d, word(2)), digit[0], unused);
    digit[1] = hn::ReorderWidenMulAccumulate(d32, odd, hn::BitCast(d, word(3)), digit[1], unused);
  }
  HWY_INLINE V32 total() const { return hn::Add(digit[0], hn::ShiftLeft<15>(digit[1])); }
};

#endif

HWY_INLINE V32 rounded(V32 total) { return hn::ShiftRight<Weights::kBits>(hn::Add(total, hn::Set(d32, kHalf))); }

// Block by block: those of a, b, c and d one after the other, clipped to bytes.
HWY_INLINE V8 packed(V32 a, V32 b, V32 c, V32 d) {
#if HWY_MAX_BYTES == 64
  return V8{_mm512_packus_epi16(_mm512_packs_epi32(a.raw, b.raw), _mm512_packs_epi32(c.raw, d.raw))};
#elif HWY_MAX_BYTES == 32
  return V8{_mm256_packus_epi16(_mm256_packs_epi32(a.raw, b.raw), _mm256_packs_epi32(c.raw, d.raw))};
#else
  return V8{_mm_packus_epi16(_mm_packs_epi32(a.raw, b.raw), _mm_packs_epi32(c.raw, d.raw))};
#endif
}

// 16 bytes of each of the rows.
HWY_INLINE V8 load_blocks(const uint8_t* const* rows, size_t at) {
  const hn::Full128<uint8_t> d;
#if HWY_MAX_BYTES == 16
  return hn::LoadU(d, rows[0] + at);
#else
  const hn::Full256<uint8_t> d2;
  const auto low = hn::Combine(d2, hn::LoadU(d, rows[1] + at), hn::LoadU(d, rows[0] + at));
#if HWY_MAX_BYTES == 32
  return low;
#else
  return hn::Combine(d8, hn::Combine(d2, hn::LoadU(d, rows[3] + at), hn::LoadU(d, rows[2] + at)), low);
#endif
#endif
}

// The first `bytes` of 16 bytes into each of the rows; all 16 are written where `whole`.
HWY_INLINE void store_blocks(V8 v, uint8_t* const* rows, size_t at, size_t bytes, bool whole) {
  HWY_ALIGN uint8_t block[kBytes];
  hn::Store(v, d8, block);
  for (int i = 0; i < kBlocks; ++i) std::memcpy(rows[i] + at, block + 16 * i, whole ? 16 : bytes);
}

// Weights of one output are those of its 16 bytes: four taps of three channels, in lanes of a channel each, or 16 taps.
template <int kChannels>
struct Layout {
  static constexpr int kTaps = kChannels == 3 ? 4 : 16, kLanes = kChannels == 3 ? 1 : 4;
};

template <int kChannels>
HWY_INLINE V8 gathered(V8 v) {
  alignas(16) static constexpr uint8_t kOrder[16] = {0, 3, 6, 9, 1, 4, 7, 10, 2, 5, 8, 11, 2, 5, 8, 11};
  return kChannels == 3 ? hn::TableLookupBytes(v, hn::LoadDup128(d8, kOrder)) : v;
}

// Four outputs of several rows, in the order of memory.
template <int kChannels>
HWY_INLINE V8 outputs(const Sum (&sum)[4]) {
  if (kChannels == 3) {
    alignas(16) static constexpr uint8_t kDense[16] = {0, 1, 2, 4, 5, 6, 8, 9, 10, 12, 13, 14, 15, 15, 15, 15};
    const V8 all = packed(rounded(sum[0].total()), rounded(sum[1].total()), rounded(sum[2].total()),
                          rounded(sum[3].total()));
    return hn::TableLookupBytes(all, hn::LoadDup128(d8, kDense));
  }
  // here the four lanes of a block are parts of one sum, and only what they add up to may be shifted
  const V32 zero = hn::Zero(d32);
  V32 v[4], both[2];
  for (int i = 0; i < 4; ++i) v[i] = sum[i].total();
  for (int i = 0; i < 2; ++i)
    both[i] = hn::Add(hn::InterleaveLower(d32, v[2 * i], v[2 * i + 1]), hn::InterleaveUpper(d32, v[2 * i], v[2 * i + 1]));
  const hn::Repartition<int64_t, decltype(d8)> d64;
  const auto a = hn::BitCast(d64, both[0]), b = hn::BitCast(d64, both[1]);
  const V32 sums = hn::Add(hn::BitCast(d32, hn::InterleaveLower(d64, a, b)), hn::BitCast(d32, hn::InterleaveUpper(d64, a, b)));
  return packed(rounded(sums), zero, zero, zero);
}
// The words of all outputs, in the order in which `across` needs them: four outputs, step by step.
template <int kChannels>
int32_t* encoded(const Weights& w, int steps, Scratch::Frame& frame) {
  constexpr int kTaps = Layout<kChannels>::kTaps, kLanes = Layout<kChannels>::kLanes, kStep = kWords * kLanes;
  const int outputs = (w.outputs + 3) / 4 * 4;
  int32_t* const words = frame.take<int32_t>(size_t(outputs) * size_t(steps) * kStep);
  int32_t* to = words;
  for (int x = 0; x < outputs; x += 4)
    for (int step = 0; step < steps; ++step)
      for (int i = x; i < x + 4; ++i, to += kStep)
        for (int lane = 0; lane < kLanes; ++lane) {
          int32_t four[4] = {0, 0, 0, 0};
          const int from = step * kTaps + lane * 4;
          if (i < w.outputs && from < w.count[i])
            std::memcpy(four, w.weight + size_t(i) * size_t(w.taps) + from,
                        size_t(std::min(4, w.count[i] - from)) * sizeof(int32_t));
          encode(four, to + lane, kLanes);
        }
  return words;
}

template <int kChannels>
void across(const Weights& w, const Pixels& in, uint8_t* out, ptrdiff_t out_row, Scratch& scratch) {
  constexpr int kTaps = Layout<kChannels>::kTaps, kStep = kWords * Layout<kChannels>::kLanes;
  Scratch::Frame frame(scratch);
  int most = 0;
  for (int i = 0; i < w.outputs; ++i) most = std::max(most, w.count[i]);
  const int steps = (most + kTaps - 1) / kTaps;
  const int32_t* const words = encoded<kChannels>(w, steps, frame);
  size_t* const at = frame.take<size_t>(size_t(w.outputs) + 3);
  size_t reach = 0;
  for (int i = 0; i < w.outputs + 3; ++i) {
    at[i] = size_t(w.first[std::min(i, w.outputs - 1)]) * kChannels;
    reach = std::max(reach, at[i] + size_t(steps - 1) * kTaps * kChannels + 16);
  }
  const size_t low = size_t(w.low) * kChannels, used = size_t(w.high) * kChannels - low;
  uint8_t* spare = nullptr;  // copies of rows that end too close to the end of the memory
  for (int y = 0; y < in.height; y += kBlocks) {
    const uint8_t* from[kBlocks];
    uint8_t* to[kBlocks];
    for (int i = 0; i < kBlocks; ++i) {
      const int row = std::min(y + i, in.height - 1);
      from[i] = in.at + row * in.row;
      to[i] = out + row * out_row;
      if (steps == 0 || size_t(in.end - from[i]) >= reach) continue;
      if (!spare) spare = frame.bytes(size_t(kBlocks) * reach);
      uint8_t* const copy = spare + size_t(i) * reach;
      std::memcpy(copy + low, from[i] + low, used);
      from[i] = copy;
    }
    const int32_t* word = words;
    for (int x = 0; x < w.outputs; x += 4) {
      Sum sum[4];
      for (Sum& s : sum) s.clear();
      for (int step = 0; step < steps; ++step)
        for (int i = 0; i < 4; ++i, word += kStep) {
          const V8 taps = gathered<kChannels>(load_blocks(from, at[x + i] + size_t(step) * kTaps * kChannels));
          sum[i].add(taps, [word](int k) HWY_ATTR {
            return kChannels == 3 ? hn::Set(d32, word[k]) : hn::LoadDup128(d32, word + 4 * k);
          });
        }
      const int n = std::min(4, w.outputs - x);
      store_blocks(outputs<kChannels>(sum), to, size_t(x) * kChannels, size_t(n) * kChannels,
                   (w.outputs - x) * kChannels >= 16);
    }
  }
}

void resize_across(const Weights& weights, int channels, const Pixels& in, uint8_t* out, ptrdiff_t out_row,
                   Scratch& scratch) {
  if (channels == 3) across<3>(weights, in, out, out_row, scratch);
  else across<1>(weights, in, out, out_row, scratch);
}

// A vector of one row of outputs; kSteps: that many times four rows, or 0 if it is to be found in `steps`.
HWY_INLINE V8 down(const uint8_t* const* rows, size_t x, const int32_t* words, int steps) {
  Sum sum[4];
  for (Sum& s : sum) s.clear();
  for (int step = 0; step < steps; ++step, rows += 4, words += kWords) {
    const V8 a = hn::LoadU(d8, rows[0] + x), b = hn::LoadU(d8, rows[1] + x);
    const V8 c = hn::LoadU(d8, rows[2] + x), d = hn::LoadU(d8, rows[3] + x);
    const auto word = [words](int k) HWY_ATTR { return hn::Set(d32, words[k]); };
    const auto ab = hn::BitCast(d16, hn::InterleaveLower(d8, a, b)), ab2 = hn::BitCast(d16, hn::InterleaveUpper(d8, a, b));
    const auto cd = hn::BitCast(d16, hn::InterleaveLower(d8, c, d)), cd2 = hn::BitCast(d16, hn::InterleaveUpper(d8, c, d));
    sum[0].add(hn::BitCast(d8, hn::InterleaveLower(d16, ab, cd)), word);
    sum[1].add(hn::BitCast(d8, hn::InterleaveUpper(d16, ab, cd)), word);
    sum[2].add(hn::BitCast(d8, hn::InterleaveLower(d16, ab2, cd2)), word);
    sum[3].add(hn::BitCast(d8, hn::InterleaveUpper(d16, ab2, cd2)), word);
  }
  return packed(rounded(sum[0].total()), rounded(sum[1].total()), rounded(sum[2].total()), rounded(sum[3].total()));
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

inline uint8_t rounded(int32_t total) {
  const int32_t level = (total + kHalf) >> Weights::kBits;
  return uint8_t(level < 0 ? 0 : level > 255 ? 255 : level);
}

void resize_across(const Weights& w, int channels, const Pixels& in, uint8_t* out, ptrdiff_t out_row, Scratch&) {
  for (int y = 0; y < in.height; ++y) {
    uint8_t* to = out + y * out_row;
    for (int x = 0; x < w.outputs; ++x)
      for (int c = 0; c < channels; ++c) {
        const uint8_t* from = in.at + y * in.row + w.first[x] * channels + c;
        const int32_t* const weight = w.weight + size_t(x) * size_t(w.taps);
        int32_t total = 0;
        for (int k = 0; k < w.count[x]; ++k, from += channels) total += weight[k] * *from;
        *to++ = rounded(total);
      }
  }
}

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

}  // namespace HWY_NAMESPACE
}  // namespace fastfeed
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace fastfeed {

HWY_EXPORT(resize_across);
HWY_EXPORT(resize_down);

void resize_across(const Weights& weights, int channels, const Pixels& in, uint8_t* out, ptrdiff_t out_row,
                   Scratch& scratch) {
  HWY_DYNAMIC_DISPATCH(resize_across)(weights, channels, in, out, out_row, scratch);
}

void resize_down(const Weights& weights, const Pixels& in, size_t bytes, uint8_t* out, ptrdiff_t out_row,
                 Scratch& scratch) {
  HWY_DYNAMIC_DISPATCH(resize_down)(weights, in, bytes, out, out_row, scratch);
}

}  // namespace fastfeed
#endif
