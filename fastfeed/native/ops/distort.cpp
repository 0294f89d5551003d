#include "ops/distort.h"

#include <algorithm>
#include <cmath>
#include <cstring>

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "ops/distort.cpp"
#include <hwy/foreach_target.h>
#include <hwy/highway.h>

HWY_BEFORE_NAMESPACE();
namespace fastfeed {
namespace HWY_NAMESPACE {
namespace {
namespace hn = hwy::HWY_NAMESPACE;

// The sums of weights[k] * rows[k][i]. rows and weights: an even number.
#if HWY_TARGET == HWY_SCALAR
int32_t sum_at(const int16_t* const* rows, const int16_t* weights, int count, int i) {
  int32_t sum = 0;
  for (int k = 0; k < count; ++k) sum += weights[k] * rows[k][i];
  return sum;
}

void blur_down(const int16_t* const* rows, const int16_t* weights, int count, int width, int16_t* out) {
  for (int i = 0; i < width; ++i) out[i] = int16_t((sum_at(rows, weights, count, i) + (1 << 13)) >> 14);
}

void blur_across(const int16_t* const* rows, const int16_t* weights, int count, int width, float scale, int32_t* out) {
  for (int i = 0; i < width; ++i) out[i] = int32_t(std::lrint(float(sum_at(rows, weights, count, i)) * scale));
}
#else
using Words = hn::ScalableTag<int16_t>;
using Ints = hn::Repartition<int32_t, Words>;
using IntV = hn::Vec<Ints>;

// Of even and of odd columns.
HWY_INLINE void sums(const int16_t* const* rows, const int16_t* weights, int count, size_t i, IntV& even, IntV& odd) {
  const Words w;
  const Ints n;
  IntV even_rest = hn::Zero(n), odd_rest = even_rest;
  even = odd = even_rest;
  for (int k = 0; k < count; k += 2) {
    const auto a = hn::LoadU(w, rows[k] + i), b = hn::LoadU(w, rows[k + 1] + i);
    int32_t both;
    std::memcpy(&both, weights + k, sizeof both);
    const auto pair = hn::BitCast(w, hn::Set(n, both));
    const auto evens = hn::OddEven(hn::BitCast(w, hn::ShiftLeft<16>(hn::BitCast(n, b))), a);
    const auto odds = hn::OddEven(b, hn::BitCast(w, hn::ShiftRight<16>(hn::BitCast(n, a))));
    even = hn::ReorderWidenMulAccumulate(n, evens, pair, even, even_rest);
    odd = hn::ReorderWidenMulAccumulate(n, odds, pair, odd, odd_rest);
  }
  even = hn::RearrangeToOddPlusEven(even, even_rest), odd = hn::RearrangeToOddPlusEven(odd, odd_rest);
}

// Rounded to 1/16384. Writes whole vectors.
void blur_down(const int16_t* const* rows, const int16_t* weights, int count, int width, int16_t* out) {
  const Words w;
  const Ints n;
  const auto half = hn::Set(n, 1 << 13);
  for (size_t i = 0; i < size_t(width); i += hn::Lanes(w)) {
    IntV even, odd;
    sums(rows, weights, count, i, even, odd);
    even = hn::ShiftRight<14>(hn::Add(even, half)), odd = hn::ShiftRight<14>(hn::Add(odd, half));
    hn::StoreU(hn::OddEven(hn::BitCast(w, hn::ShiftLeft<16>(odd)), hn::BitCast(w, even)), w, out + i);
  }
}

void blur_across(const int16_t* const* rows, const int16_t* weights, int count, int width, float scale, int32_t* out) {
  const Words w;
  const Ints n;
  const hn::RebindToFloat<Ints> f;
  const auto factor = hn::Set(f, scale);
  for (size_t i = 0; i < size_t(width); i += hn::Lanes(w)) {
    IntV even, odd;
    sums(rows, weights, count, i, even, odd);
    const auto first = hn::NearestInt(hn::Mul(hn::ConvertTo(f, even), factor));
    const auto second = hn::NearestInt(hn::Mul(hn::ConvertTo(f, odd), factor));
    hn::StoreInterleaved2(first, second, n, out + i);
  }
}
#endif

}  // namespace
}  // namespace HWY_NAMESPACE
}  // namespace fastfeed
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace fastfeed {
namespace {

HWY_EXPORT(blur_down);
HWY_EXPORT(blur_across);

constexpr int kRoom = 64;  // numbers that may be read or written beyond a row, by whole vectors
constexpr double kFar = 1 << 24;

// A row of the result. xs, ys: the place that each pixel shows.
template <int kChannels>
void show_row(const WarpSource& in, const int32_t* xs, const int32_t* ys, bool nearest, int width, uint8_t* out) {
  const ptrdiff_t row = ptrdiff_t(in.row());
  for (int i = 0; i < width; ++i, out += kChannels) {
    if (nearest) {
      std::memcpy(out, in.pixel((ys[i] + 128) >> 8, (xs[i] + 128) >> 8), kChannels);
      continue;
    }
    const int x = xs[i] >> 8, y = ys[i] >> 8, across = xs[i] & 255, down = ys[i] & 255;
    const bool inside = x >= 0 && x < in.width - 1 && y >= 0 && y < in.height - 1;
    const uint8_t *a = inside ? in.at + y * row + x * kChannels : in.pixel(y, x);
    const uint8_t *b = inside ? a + kChannels : in.pixel(y, x + 1), *c = inside ? a + row : in.pixel(y + 1, x);
    const uint8_t* d = inside ? c + kChannels : in.pixel(y + 1, x + 1);
    for (int k = 0; k < kChannels; ++k) {
      const int above = a[k] * (256 - across) + b[k] * across, below = c[k] * (256 - across) + d[k] * across;
      out[k] = uint8_t((above * (256 - down) + below * down + (1 << 15)) >> 16);
    }
  }
}

void show(const WarpSource& in, const int32_t* xs, const int32_t* ys, Interpolation filter, int y, Image& image) {
  uint8_t* const out = image.at + size_t(y) * image.row();
  const bool nearest = filter == Interpolation::nearest;
  if (image.channels == 1) show_row<1>(in, xs, ys, nearest, image.width, out);
  else show_row<3>(in, xs, ys, nearest, image.width, out);
}

int32_t place(double at) { return int32_t(std::nearbyint(std::clamp(at, -kFar, kFar))); }

// Where `count` pixels are that a grid's lines stretch over.
void stretch(const double* lines, int steps, int count, int32_t* places) {
  for (int i = 0; i < count; ++i) {
    const double at = (i + 0.5) * steps / count;
    const int strip = std::min(int(at), steps - 1);
    const double width = lines[strip + 1] - lines[strip];
    const double inside = width * (at - strip);
    places[i] = place((lines[strip] + inside - 0.5) * 256);
  }
}

}  // namespace

void elastic(Image& image, const Elastic& how, const Border& border, Interpolation filter, Scratch& scratch) {
  Scratch::Frame frame(scratch);
  const WarpSource source = copy_with_margin(image, border, 0, scratch);
  const int half = how.taps / 2, wide = image.width + 2 * half, tall = image.height + 2 * half, even = how.taps + 1;
  const size_t stride = size_t(wide + kRoom);
  int16_t* const weights = frame.take<int16_t>(size_t(even));
  for (int k = 0; k < even; ++k) weights[k] = k < how.taps ? int16_t(how.weights[k]) : 0;
  int16_t* const middle = frame.take<int16_t>(stride);
  std::memset(middle, 0, stride * sizeof(int16_t));
  const int16_t** const columns = frame.take<const int16_t*>(size_t(even));
  for (int k = 0; k < even; ++k) columns[k] = middle + std::min(k, how.taps - 1);
  const int16_t** rows[2];
  int32_t* places[2];
  for (int axis = 0; axis < 2; ++axis) {
    places[axis] = frame.take<int32_t>(size_t(image.width + kRoom));
    rows[axis] = frame.take<const int16_t*>(size_t(tall + 1));
    int64_t from = how.offsets[axis] % how.length;
    for (int y = 0; y < tall; ++y, from = (from + wide) % how.length) {
      rows[axis][y] = how.noise + from;
      if (from + int64_t(stride) <= how.length) continue;
      int16_t* const copy = frame.take<int16_t>(stride);
      for (size_t k = 0; k < stride; ++k) copy[k] = how.noise[(from + int64_t(k)) % how.length];
      rows[axis][y] = copy;
    }
    rows[axis][tall] = rows[axis][tall - 1];  // of weight 0
  }
  for (int y = 0; y < image.height; ++y) {
    for (int axis = 0; axis < 2; ++axis) {
      HWY_DYNAMIC_DISPATCH(blur_down)(rows[axis] + y, weights, even, wide, middle);
      HWY_DYNAMIC_DISPATCH(blur_across)(columns, weights, even, image.width, how.scale, places[axis]);
    }
    for (int x = 0; x < image.width; ++x) places[0][x] += x * 256, places[1][x] += y * 256;
    show(source, places[0], places[1], filter, y, image);
  }
}

void grid_distortion(Image& image, const double* lines, int steps, const Border& border, Interpolation filter,
                     Scratch& scratch) {
  Scratch::Frame frame(scratch);
  const WarpSource source = copy_with_margin(image, border, 0, scratch);
  int32_t* const xs = frame.take<int32_t>(size_t(image.width));
  int32_t* const ys = frame.take<int32_t>(size_t(image.width));
  int32_t* const rows = frame.take<int32_t>(size_t(image.height));
  stretch(lines, steps, image.width, xs);
  stretch(lines + steps + 1, steps, image.height, rows);
  for (int y = 0; y < image.height; ++y) {
    std::fill_n(ys, image.width, rows[y]);
    show(source, xs, ys, filter, y, image);
  }
}

}  // namespace fastfeed
#endif
