#include <algorithm>
#include <cmath>
#include <cstring>

#include "ops/filters.h"

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "ops/blur.cpp"
#include <hwy/foreach_target.h>
#include <hwy/highway.h>

#include "ops/floats-inl.h"

HWY_BEFORE_NAMESPACE();
namespace fastfeed {
namespace HWY_NAMESPACE {
namespace {

// The order of the additions in both passes, and that products are not rounded, is OpenCV's where it has AVX2. In the
// last numbers of a row, which do not fill its vectors, OpenCV rounds products; so does this.
constexpr size_t kRowVectors = 32, kColumnVectors = 4;  // numbers

// out[i] = the sum of weights[j] * in[i + j * channels] for kVectors vectors at i.
template <int kVectors, bool kFused>
HWY_INLINE void filter_run(const float* in, const float* weights, int taps, int channels, float* out) {
  const Floats f;
  const size_t lanes = hn::Lanes(f);
  FloatV sum[kVectors];
  const FloatV first = hn::Set(f, weights[0]);
  for (int k = 0; k < kVectors; ++k) sum[k] = hn::Mul(hn::LoadU(f, in + size_t(k) * lanes), first);
  for (int j = 1; j < taps; ++j) {
    in += channels;
    const FloatV weight = hn::Set(f, weights[j]);
    for (int k = 0; k < kVectors; ++k) {
      const FloatV value = hn::LoadU(f, in + size_t(k) * lanes);
      sum[k] = kFused ? fused(value, weight, sum[k]) : hn::Add(sum[k], hn::Mul(value, weight));
    }
  }
  for (int k = 0; k < kVectors; ++k) hn::StoreU(sum[k], f, out + size_t(k) * lanes);
}

// `in`: a row of bytes; `line`: its floats, with room for a margin of `half` pixels before and behind, which are copies
// of what `margin` says. Sums of up to four vectors more than asked for.
void filter_row(const uint8_t* in, float* line, const int* margin, int half, const float* weights, int channels,
                float* out, size_t count) {
  const Floats f;
  const hn::Rebind<uint8_t, Floats> b;
  const hn::Rebind<int32_t, Floats> d;
  const size_t lanes = hn::Lanes(f), before = size_t(half) * size_t(channels);
  float* at = line + before;
  size_t i = 0;
  for (; i + lanes <= count; i += lanes)
    hn::StoreU(hn::ConvertTo(f, hn::PromoteTo(d, hn::LoadU(b, in + i))), f, at + i);
  for (; i < count; ++i) at[i] = in[i];
  for (size_t k = 0; k < before; ++k) line[k] = at[margin[k]];
  for (size_t k = 0; k < before; ++k) at[count + k] = at[margin[before + k]];
  const int taps = 2 * half + 1;
  const size_t end = count / kRowVectors * kRowVectors;
  // each addition waits four cycles for the one before it: eight sums at a time keep two units busy
  for (i = 0; i + 8 * lanes <= end; i += 8 * lanes) filter_run<8, true>(line + i, weights, taps, channels, out + i);
  for (; i < end; i += 4 * lanes) filter_run<4, true>(line + i, weights, taps, channels, out + i);
  for (i = end; i < count; i += 4 * lanes) filter_run<4, false>(line + i, weights, taps, channels, out + i);
}

// Four vectors of floats of -0.5 to 255.5, rounded, ties to even.
HWY_INLINE void store_rounded(const FloatV (&v)[4], uint8_t* at) {
#if HWY_TARGET == HWY_SCALAR
  for (int k = 0; k < 4; ++k) at[k] = uint8_t(std::lrint(hn::GetLane(v[k])));
#else
  const Bytes b;
  const hn::RebindToUnsigned<Ints> u;
  HWY_ALIGN static constexpr uint8_t kGather[16] = {0, 4, 8, 12, 1, 5, 9, 13, 2, 6, 10, 14, 3, 7, 11, 15};
  const auto mixed = bytes_of_words(rounded(v[0], v[2]), rounded(v[1], v[3]));
  // four bytes of each vector are together now, in every 16 bytes
  const auto gathered = hn::BitCast(u, hn::TableLookupBytes(mixed, hn::LoadDup128(b, kGather)));
  const auto index = hn::Iota(hn::RebindToSigned<decltype(u)>(), 0);
  const int shift = int(hn::Lanes(u) / 4) == 4 ? 2 : int(hn::Lanes(u) / 4) == 2 ? 1 : 0;
  // lane k * blocks + block takes 4 * block + k
  const auto blocks = hn::Set(hn::RebindToSigned<decltype(u)>(), int(hn::Lanes(u) / 4) - 1);
  const auto from = hn::Add(hn::ShiftLeft<2>(hn::And(index, blocks)), hn::ShiftRightSame(index, shift));
  const auto ordered = hn::TableLookupLanes(gathered, hn::IndicesFromVec(u, from));
  hn::StoreU(hn::BitCast(b, ordered), b, at);
#endif
}

// One row or two, symmetric: weights[0] is the center's. Of two rows, half of what is loaded serves both. Four vectors.
template <int kRows>
HWY_INLINE void filter_columns(const float* const* rows, const float* weights, int half, size_t i,
                               uint8_t* (&out)[kRows]) {
  constexpr int kTogether = HWY_MAX_BYTES >= 64 || kRows == 1 ? 4 : 2;  // as many as registers can hold
  const Floats f;
  FloatV sum[kRows][4];
  for (int part = 0; part < 4; part += kTogether) {
    const auto load = [&](int row, int k) { return hn::LoadU(f, rows[row] + i + size_t(part + k) * hn::Lanes(f)); };
    FloatV above[kTogether], below[kTogether];  // of the other row, for j - 1
    const FloatV center = hn::Set(f, weights[0]);
    for (int k = 0; k < kTogether; ++k) {
      above[k] = load(half, k);
      sum[0][part + k] = hn::Mul(above[k], center);
      if (kRows == 1) continue;
      below[k] = load(half + 1, k);
      sum[kRows - 1][part + k] = hn::Mul(below[k], center);
    }
    for (int j = 1; j <= half; ++j) {
      const FloatV weight = hn::Set(f, weights[j]);
      for (int k = 0; k < kTogether; ++k) {
        const FloatV up = load(half - j, k), down = load(half + kRows - 1 + j, k);
        if (kRows == 1) {
          sum[0][part + k] = fused(hn::Add(up, down), weight, sum[0][part + k]);
          continue;
        }
        sum[0][part + k] = fused(hn::Add(up, below[k]), weight, sum[0][part + k]);
        sum[kRows - 1][part + k] = fused(hn::Add(above[k], down), weight, sum[kRows - 1][part + k]);
        above[k] = up, below[k] = down;
      }
    }
  }
  for (int r = 0; r < kRows; ++r) store_rounded(sum[r], out[r]);
}

template <int kRows>
HWY_INLINE void filter_rows(const float* const* rows, const float* weights, int half, uint8_t* out, size_t count) {
  size_t i = 0;
  uint8_t* at[kRows];
  for (; i + quad_bytes() <= count; i += quad_bytes()) {
    for (int r = 0; r < kRows; ++r) at[r] = out + size_t(r) * count + i;
    filter_columns<kRows>(rows, weights, half, i, at);
  }
  if (i < count) {
    uint8_t made[kRows][HWY_MAX_BYTES];
    for (int r = 0; r < kRows; ++r) at[r] = made[r];
    filter_columns<kRows>(rows, weights, half, i, at);
    for (int r = 0; r < kRows; ++r) std::memcpy(out + size_t(r) * count + i, made[r], count - i);
  }
  for (i = count / kColumnVectors * kColumnVectors; i < count; ++i)
    for (int r = 0; r < kRows; ++r) {
      float sum = rows[half + r][i] * weights[0];
      for (int j = 1; j <= half; ++j) sum += (rows[half + r - j][i] + rows[half + r + j][i]) * weights[j];
      out[size_t(r) * count + i] = uint8_t(std::lrint(sum));
    }
}

void filter_one_row(const float* const* rows, const float* weights, int half, uint8_t* out, size_t count) {
  filter_rows<1>(rows, weights, half, out, count);
}
void filter_two_rows(const float* const* rows, const float* weights, int half, uint8_t* out, size_t count) {
  filter_rows<2>(rows, weights, half, out, count);
}

}  // namespace
}  // namespace HWY_NAMESPACE
}  // namespace fastfeed
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace fastfeed {

HWY_EXPORT(filter_row);
HWY_EXPORT(filter_one_row);
HWY_EXPORT(filter_two_rows);

namespace {

constexpr size_t kBeyond = 64;  // four vectors of floats, of any target

// The row or column that is seen there, of `count`: mirrored at the outermost, as often as it takes.
int mirrored(int at, int count) {
  if (count == 1) return 0;
  const int period = 2 * (count - 1);
  at = std::abs(at) % period;
  return at < count ? at : period - at;
}

// NumPy's order of additions of float32: in eights where there are so many.
float sum_of(const float* values, int count) {
  float sums[8] = {};
  if (count < 8) {
    float sum = 0;
    for (int i = 0; i < count; ++i) sum += values[i];
    return sum;
  }
  int i = 0;
  if (count > 128) {
    const int left = count / 2 / 8 * 8;
    return sum_of(values, left) + sum_of(values + left, count - left);
  }
  for (; i + 8 <= count; i += 8)
    for (int k = 0; k < 8; ++k) sums[k] = i ? sums[k] + values[i + k] : values[k];
  float sum = ((sums[0] + sums[1]) + (sums[2] + sums[3])) + ((sums[4] + sums[5]) + (sums[6] + sums[7]));
  for (; i < count; ++i) sum += values[i];
  return sum;
}

}  // namespace

void blur(Image& image, double sigma, int taps, Scratch& scratch) {
  // beyond four sigma weights are nothing to a byte
  const int half = std::min(taps / 2, int(std::ceil(4 * sigma))), across = 2 * half + 1;
  const int channels = image.channels, slots = std::min(image.height, across + 1);
  const size_t row = image.row(), before = size_t(half) * size_t(channels);
  Scratch::Frame frame(scratch);
  float *weights = frame.take<float>(size_t(across)), *column = frame.take<float>(size_t(half) + 1);
  for (int j = -half; j <= half; ++j) weights[j + half] = float(std::exp(-0.5 * (j / sigma) * (j / sigma)));
  const float sum = sum_of(weights, across);
  for (int j = 0; j < across; ++j) weights[j] /= sum;
  if ((1 - weights[half] * weights[half]) * 255 < 0.45f) return;  // less than what changes a byte
  for (int j = 0; j <= half; ++j) column[j] = weights[half + j] / 2;
  for (int j = 0; j < across; ++j) weights[j] *= 2;

  float* line = frame.take<float>(row + 2 * before + kBeyond);
  std::fill(line + row + 2 * before, line + row + 2 * before + kBeyond, 0.0f);
  int* margin = frame.take<int>(2 * before);
  for (int x = 0; x < half; ++x)
    for (int c = 0; c < channels; ++c) {
      margin[x * channels + c] = mirrored(x - half, image.width) * channels + c;
      margin[(half + x) * channels + c] = mirrored(image.width + x, image.width) * channels + c;
    }
  const size_t room = (row + kBeyond + 15) / 16 * 16;
  float* ring = frame.take<float>(room * size_t(slots));
  const float** rows = frame.take<const float*>(size_t(image.height) + 2 * size_t(half));
  for (int y = -half; y < image.height + half; ++y)
    rows[y + half] = ring + room * size_t(mirrored(y, image.height) % slots);
  for (int y = 0, done = 0; y < image.height; y += 2) {
    for (; done < std::min(image.height, y + 2 + half); ++done)
      HWY_DYNAMIC_DISPATCH(filter_row)
      (image.at + size_t(done) * row, line, margin, half, weights, channels, ring + room * size_t(done % slots), row);
    uint8_t* out = image.at + size_t(y) * row;
    if (y + 1 < image.height) HWY_DYNAMIC_DISPATCH(filter_two_rows)(rows + y, column, half, out, row);
    else HWY_DYNAMIC_DISPATCH(filter_one_row)(rows + y, column, half, out, row);
  }
}

}  // namespace fastfeed
#endif
