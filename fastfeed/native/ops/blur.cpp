#include <algorithm>
#include <cmath>
#include <cstring>

#include "filters.h"

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "ops/blur.cpp"
#include <hwy/foreach_target.h>
#include <hwy/highway.h>

#include "floats-inl.h"

HWY_BEFORE_NAMESPACE();
namespace fastfeed {
namespace HWY_NAMESPACE {
namespace {

// The order of the additions in both passes, and that products are not rounded, is OpenCV's where it has AVX2.

// out[i] = the sum of weights[j] * in[i + j * channels]. Up to four vectors more than asked for.
void filter_row(const float* in, const float* weights, int taps, int channels, float* out, size_t count) {
  const Floats f;
  const size_t lanes = hn::Lanes(f);
  for (size_t i = 0; i < count; i += 4 * lanes) {
    FloatV sum[4];
    const FloatV first = hn::Set(f, weights[0]);
    for (size_t k = 0; k < 4; ++k) sum[k] = hn::Mul(hn::LoadU(f, in + i + k * lanes), first);
    const float* at = in + i;
    for (int j = 1; j < taps; ++j) {
      at += channels;
      const FloatV weight = hn::Set(f, weights[j]);
      for (size_t k = 0; k < 4; ++k) sum[k] = fused(hn::LoadU(f, at + k * lanes), weight, sum[k]);
    }
    for (size_t k = 0; k < 4; ++k) hn::StoreU(sum[k], f, out + i + k * lanes);
  }
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

// Of 2 * half + 1 rows, symmetric: weights[0] is the center's. Four vectors at i.
HWY_INLINE void filter_columns(const float* const* rows, const float* weights, int half, size_t i, uint8_t* out) {
  const Floats f;
  const size_t lanes = hn::Lanes(f);
  FloatV sum[4];
  const FloatV center = hn::Set(f, weights[0]);
  for (size_t k = 0; k < 4; ++k) sum[k] = hn::Mul(hn::LoadU(f, rows[half] + i + k * lanes), center);
  for (int j = 1; j <= half; ++j) {
    const float *above = rows[half - j] + i, *below = rows[half + j] + i;
    const FloatV weight = hn::Set(f, weights[j]);
    for (size_t k = 0; k < 4; ++k)
      sum[k] = fused(hn::Add(hn::LoadU(f, above + k * lanes), hn::LoadU(f, below + k * lanes)), weight, sum[k]);
  }
  store_rounded(sum, out);
}

void filter_rows(const float* const* rows, const float* weights, int half, uint8_t* out, size_t count) {
  size_t i = 0;
  for (; i + quad_bytes() <= count; i += quad_bytes()) filter_columns(rows, weights, half, i, out + i);
  if (i == count) return;
  uint8_t made[HWY_MAX_BYTES];
  filter_columns(rows, weights, half, i, made);
  std::memcpy(out + i, made, count - i);
}

void to_floats(const uint8_t* in, float* out, size_t count) {
  for (size_t i = 0; i < count; ++i) out[i] = float(in[i]);
}

}  // namespace
}  // namespace HWY_NAMESPACE
}  // namespace fastfeed
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace fastfeed {

HWY_EXPORT(filter_row);
HWY_EXPORT(filter_rows);
HWY_EXPORT(to_floats);

namespace {

constexpr size_t kBeyond = 64;  // four vectors of floats, of any target

// The row or column that is seen there, of `count`: mirrored at the outermost, as often as it takes.
int mirrored(int at, int count) {
  if (count == 1) return 0;
  while (at < 0 || at >= count) at = at < 0 ? -at : 2 * (count - 1) - at;
  return at;
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
  const int channels = image.channels, slots = std::min(image.height, across);
  const size_t row = image.row(), margin = size_t(half) * size_t(channels);
  Scratch::Frame frame(scratch);
  float *weights = frame.take<float>(size_t(across)), *column = frame.take<float>(size_t(half) + 1);
  for (int j = -half; j <= half; ++j) weights[j + half] = float(std::exp(-0.5 * (j / sigma) * (j / sigma)));
  const float sum = sum_of(weights, across);
  for (int j = 0; j < across; ++j) weights[j] /= sum;
  if ((1 - weights[half] * weights[half]) * 255 < 0.45f) return;  // less than what changes a byte
  for (int j = 0; j <= half; ++j) column[j] = weights[half + j] / 2;
  for (int j = 0; j < across; ++j) weights[j] *= 2;

  float* line = frame.take<float>(row + 2 * margin + kBeyond);
  const size_t room = (row + kBeyond + 15) / 16 * 16;
  float* ring = frame.take<float>(room * size_t(slots));
  const float** rows = frame.take<const float*>(size_t(across));
  std::fill(line + row + 2 * margin, line + row + 2 * margin + kBeyond, 0.0f);
  int done = 0;
  for (int y = 0; y < image.height; ++y) {
    for (; done < image.height && done <= y + half; ++done) {
      HWY_DYNAMIC_DISPATCH(to_floats)(image.at + size_t(done) * row, line + margin, row);
      for (int x = 1; x <= half; ++x) {
        const size_t before = size_t(mirrored(-x, image.width)), behind = size_t(mirrored(image.width - 1 + x, image.width));
        for (int c = 0; c < channels; ++c) {
          line[margin - size_t(x * channels) + size_t(c)] = line[margin + before * size_t(channels) + size_t(c)];
          line[margin + row + size_t((x - 1) * channels + c)] = line[margin + behind * size_t(channels) + size_t(c)];
        }
      }
      HWY_DYNAMIC_DISPATCH(filter_row)(line, weights, across, channels, ring + room * size_t(done % slots), row);
    }
    for (int j = -half; j <= half; ++j) rows[j + half] = ring + room * size_t(mirrored(y + j, image.height) % slots);
    HWY_DYNAMIC_DISPATCH(filter_rows)(rows, column, half, image.at + size_t(y) * row, row);
  }
}

}  // namespace fastfeed
#endif
