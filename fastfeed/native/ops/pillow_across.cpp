#include "ops/pillow_passes.h"

#include <algorithm>
#include <cstring>

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "ops/pillow_across.cpp"
#include <hwy/foreach_target.h>
#include <hwy/highway.h>

#include "ops/pillow_sums-inl.h"

HWY_BEFORE_NAMESPACE();
namespace fastfeed {
namespace HWY_NAMESPACE {
namespace {

#if FASTFEED_PILLOW_BLOCKS

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
  if (whole) {
    for (int i = 0; i < kBlocks; ++i) std::memcpy(rows[i] + at, block + 16 * i, 16);
  } else {
    for (int i = 0; i < kBlocks; ++i) std::memcpy(rows[i] + at, block + 16 * i, bytes);
  }
}

// The words of four weights of an output, from weight `from` on; zeros beyond its last one, and beyond the last output.
inline void encode_of(const Weights& w, int output, int from, int32_t* words, size_t step) {
  int32_t four[4] = {0, 0, 0, 0};
  if (output < w.outputs && from < w.count[output])
    std::memcpy(four, w.weight + size_t(output) * size_t(w.taps) + from,
                size_t(std::min(4, w.count[output] - from)) * sizeof(int32_t));
  encode(four, words, step);
}

inline int most_taps(const Weights& w) {
  int most = 0;
  for (int i = 0; i < w.outputs; ++i) most = std::max(most, w.count[i]);
  return most;
}

// A block is 16 bytes of a row, for one output: four taps of three channels, in lanes of a channel each, or 16 taps.
template <int kChannels>
class Apart {
 public:
  static constexpr int kOutputs = 4;  // at a time, of several rows

  Apart(const Weights& w, Scratch::Frame& frame) : steps_((most_taps(w) + kTaps - 1) / kTaps) {
    const int outputs = (w.outputs + 3) / 4 * 4;
    at_ = frame.take<size_t>(size_t(outputs));
    words_ = frame.take<int32_t>(size_t(outputs) * size_t(steps_) * kStep);
    int32_t* word = words_;
    for (int x = 0; x < outputs; x += 4)
      for (int step = 0; step < steps_; ++step)
        for (int i = x; i < x + 4; ++i, word += kStep)
          for (int lane = 0; lane < kLanes; ++lane) encode_of(w, i, step * kTaps + lane * 4, word + lane, kLanes);
    for (int i = 0; i < outputs; ++i) {
      at_[i] = size_t(w.first[std::min(i, w.outputs - 1)]) * kChannels;
      if (steps_) reach_ = std::max(reach_, at_[i] + size_t(steps_ - 1) * kTaps * kChannels + 16);
    }
  }
  size_t reach() const { return reach_; }  // bytes of a row that may be read

  HWY_INLINE V8 outputs(const uint8_t* const* rows, int x) const {
    constexpr int32_t kStart = kHalf / (kChannels == 3 ? 1 : 4);  // of one channel, four lanes are added in the end
    Sum a(kStart), b(kStart), c(kStart), d(kStart);
    const int32_t* word = words_ + size_t(x) * size_t(steps_) * kStep;
    const size_t* const at = at_ + x;
    const size_t end = size_t(steps_) * kTaps * kChannels;
    for (size_t skip = 0; skip < end; skip += kTaps * kChannels, word += 4 * kStep) {
      a.add(taps(load_blocks(rows, at[0] + skip)), words_of(word));
      b.add(taps(load_blocks(rows, at[1] + skip)), words_of(word + kStep));
      c.add(taps(load_blocks(rows, at[2] + skip)), words_of(word + 2 * kStep));
      d.add(taps(load_blocks(rows, at[3] + skip)), words_of(word + 3 * kStep));
    }
    if (kChannels == 3) {
      alignas(16) static constexpr uint8_t kDense[16] = {0, 1, 2, 4, 5, 6, 8, 9, 10, 12, 13, 14, 15, 15, 15, 15};
      return hn::TableLookupBytes(packed(a, b, c, d), hn::LoadDup128(d8, kDense));
    }
    const hn::Repartition<int64_t, decltype(d8)> d64;
    const auto first = hn::BitCast(d64, pairs(a, b)), second = hn::BitCast(d64, pairs(c, d));
    const auto low = hn::InterleaveLower(d64, first, second), high = hn::InterleaveUpper(d64, first, second);
    const V32 zero = hn::Zero(d32);
    return packed(hn::Add(hn::BitCast(d32, low), hn::BitCast(d32, high)), zero, zero, zero);
  }

 private:
  static constexpr int kTaps = kChannels == 3 ? 4 : 16, kLanes = kChannels == 3 ? 1 : 4, kStep = kWords * kLanes;

  static HWY_INLINE V8 taps(V8 block) {
    alignas(16) static constexpr uint8_t kOrder[16] = {0, 3, 6, 9, 1, 4, 7, 10, 2, 5, 8, 11, 2, 5, 8, 11};
    return kChannels == 3 ? hn::TableLookupBytes(block, hn::LoadDup128(d8, kOrder)) : block;
  }
  static HWY_INLINE Words words_of(const int32_t* word) { return kChannels == 3 ? set(word) : load_block(word); }
  // Lanes 0 and 2, then 1 and 3, of each.
  static HWY_INLINE V32 pairs(const Sum& a, const Sum& b) {
    const V32 first = a.total(), second = b.total();
    return hn::Add(hn::InterleaveLower(d32, first, second), hn::InterleaveUpper(d32, first, second));
  }

  int steps_;
  size_t reach_ = 0;
  size_t* at_;
  int32_t* words_;
};

#if HWY_TARGET == HWY_AVX3_DL

// The taps of all outputs of a vector lie within 64 bytes of a row, and one permutation brings them into their lanes.
template <int kChannels>
class Near {
 public:
  static constexpr int kOutputs = 16 / (kChannels == 3 ? 4 : 1);

  static bool fits(const Weights& w) {
    for (int x = 0; x < w.outputs; x += kOutputs) {
      const auto [low, high] = std::minmax_element(w.first + x, w.first + std::min(x + kOutputs, w.outputs));
      if ((*high - *low + 4) * kChannels > 64) return false;
    }
    return true;
  }

  Near(const Weights& w, Scratch::Frame& frame) : steps_((most_taps(w) + 3) / 4) {
    const size_t groups = size_t(w.outputs + kOutputs - 1) / kOutputs;
    at_ = frame.take<size_t>(groups);
    order_ = frame.take<uint32_t>(groups * 16);
    words_ = frame.take<int32_t>(groups * size_t(steps_) * kStep);
    for (size_t group = 0; group < groups; ++group) {
      const int x = int(group) * kOutputs, end = std::min(x + kOutputs, w.outputs);
      const int low = *std::min_element(w.first + x, w.first + end);
      at_[group] = size_t(low) * kChannels;
      reach_ = std::max(reach_, at_[group] + size_t(std::max(steps_ - 1, 0)) * 4 * kChannels + 64);
      for (int lane = 0; lane < 16; ++lane) {  // four bytes in a word: none of them is above 63
        const int first = w.first[std::min(x + lane / kLanes, w.outputs - 1)] - low;
        const int byte = first * kChannels + std::min(lane % kLanes, kChannels - 1);
        order_[group * 16 + size_t(lane)] = uint32_t(byte) * 0x01010101u + uint32_t(kChannels) * 0x03020100u;
      }
      for (int step = 0; step < steps_; ++step) {
        int32_t* const words = words_ + (group * size_t(steps_) + size_t(step)) * kStep;
        for (int lane = 0; lane < 16; lane += kLanes) {
          encode_of(w, x + lane / kLanes, step * 4, words + lane, 16);
          for (int k = 0; k < kWords; ++k) std::fill_n(words + 16 * k + lane, kLanes, words[16 * k + lane]);
        }
      }
    }
  }
  size_t reach() const { return reach_; }

  HWY_INLINE V8 outputs(const uint8_t* const* rows, int x) const {
    const size_t group = size_t(x) / kOutputs;
    size_t at = at_[group];
    const V8 order = hn::BitCast(d8, hn::LoadU(hn::ScalableTag<uint32_t>(), order_ + group * 16));
    const int32_t* words = words_ + group * size_t(steps_) * kStep;
    Sum a(kHalf), b(kHalf), c(kHalf), d(kHalf);
    for (int step = 0; step < steps_; ++step, words += kStep, at += 4 * kChannels) {
      const Words weights = load(words);
      a.add(permuted(hn::LoadU(d8, rows[0] + at), order), weights);
      b.add(permuted(hn::LoadU(d8, rows[1] + at), order), weights);
      c.add(permuted(hn::LoadU(d8, rows[2] + at), order), weights);
      d.add(permuted(hn::LoadU(d8, rows[3] + at), order), weights);
    }
    const V8 all = packed(a, b, c, d);
    // every block has four lanes of each row in turn; what is wanted is a block per row
    HWY_ALIGN static constexpr uint8_t kRows[64] = {
        0, 1, 2, 16, 17, 18, 32, 33, 34, 48, 49, 50, 0, 0, 0, 0,
        4, 5, 6, 20, 21, 22, 36, 37, 38, 52, 53, 54, 0, 0, 0, 0,
        8, 9, 10, 24, 25, 26, 40, 41, 42, 56, 57, 58, 0, 0, 0, 0,
        12, 13, 14, 28, 29, 30, 44, 45, 46, 60, 61, 62, 0, 0, 0, 0};
    HWY_ALIGN static constexpr int32_t kLanesOfRows[16] = {0, 4, 8, 12, 1, 5, 9, 13, 2, 6, 10, 14, 3, 7, 11, 15};
    if (kChannels == 3) return permuted(all, hn::Load(d8, kRows));
    return V8{_mm512_permutexvar_epi32(hn::Load(d32, kLanesOfRows).raw, all.raw)};
  }

 private:
  static constexpr int kLanes = 16 / kOutputs, kStep = kWords * 16;
  static HWY_INLINE V8 permuted(V8 bytes, V8 order) { return V8{_mm512_permutexvar_epi8(order.raw, bytes.raw)}; }

  int steps_;
  size_t reach_ = 0;
  size_t* at_;
  uint32_t* order_;
  int32_t* words_;
};

#endif

template <class Layout, int kChannels>
void across(const Weights& w, const Pixels& in, uint8_t* out, ptrdiff_t out_row, Scratch& scratch) {
  Scratch::Frame frame(scratch);
  const Layout layout(w, frame);
  const size_t low = size_t(w.low) * kChannels, used = size_t(w.high) * kChannels - low, reach = layout.reach();
  uint8_t* spare = nullptr;  // copies of rows that end too close to the end of the memory
  for (int y = 0; y < in.height; y += kBlocks) {
    const uint8_t* from[kBlocks];
    uint8_t* to[kBlocks];
    for (int i = 0; i < kBlocks; ++i) {
      const int row = std::min(y + i, in.height - 1);
      from[i] = in.at + row * in.row;
      to[i] = out + row * out_row;
      if (size_t(in.end - from[i]) >= reach) continue;
      if (!spare) spare = frame.bytes(size_t(kBlocks) * reach);
      uint8_t* const copy = spare + size_t(i) * reach;
      std::memcpy(copy + low, from[i] + low, std::min(used, reach - low));
      from[i] = copy;
    }
    for (int x = 0; x < w.outputs; x += Layout::kOutputs) {
      const int left = w.outputs - x, made = std::min(left, Layout::kOutputs);
      const V8 v = layout.outputs(from, x);
      store_blocks(v, to, size_t(x) * kChannels, size_t(made) * kChannels, left * kChannels >= 16);
    }
  }
}

template <int kChannels>
void across(const Weights& w, const Pixels& in, uint8_t* out, ptrdiff_t out_row, Scratch& scratch) {
#if HWY_TARGET == HWY_AVX3_DL
  if (Near<kChannels>::fits(w)) return across<Near<kChannels>, kChannels>(w, in, out, out_row, scratch);
#endif
  across<Apart<kChannels>, kChannels>(w, in, out, out_row, scratch);
}

void resize_across(const Weights& weights, int channels, const Pixels& in, uint8_t* out, ptrdiff_t out_row,
                   Scratch& scratch) {
  if (channels == 3) across<3>(weights, in, out, out_row, scratch);
  else across<1>(weights, in, out, out_row, scratch);
}

#else

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

#endif

}  // namespace
}  // namespace HWY_NAMESPACE
}  // namespace fastfeed
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace fastfeed {

HWY_EXPORT(resize_across);

void resize_across(const Weights& weights, int channels, const Pixels& in, uint8_t* out, ptrdiff_t out_row,
                   Scratch& scratch) {
  HWY_DYNAMIC_DISPATCH(resize_across)(weights, channels, in, out, out_row, scratch);
}

}  // namespace fastfeed
#endif
