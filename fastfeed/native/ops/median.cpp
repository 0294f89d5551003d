// The median of a square of pixels.
#include <algorithm>
#include <cstring>

#include "ops/filters.h"
#include "ops/warps.h"

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "ops/median.cpp"
#include <hwy/foreach_target.h>
#include <hwy/highway.h>

HWY_BEFORE_NAMESPACE();
namespace fastfeed {
namespace HWY_NAMESPACE {
namespace {
namespace hn = hwy::HWY_NAMESPACE;

using Bytes = hn::ScalableTag<uint8_t>;
using V = hn::Vec<Bytes>;

HWY_INLINE void sort(V& a, V& b) {
  const V low = hn::Min(a, b);
  b = hn::Max(a, b);
  a = low;
}

HWY_INLINE void sort(V& a, V& b, V& c) {
  sort(a, b);
  sort(b, c);
  sort(a, b);
}

HWY_INLINE void sort(V& a, V& b, V& c, V& d, V& e) {
  sort(a, b);
  sort(d, e);
  sort(c, e);
  sort(c, d);
  sort(b, e);
  sort(a, d);
  sort(a, c);
  sort(b, d);
  sort(b, c);
}

// Drops the least and the greatest of v[from], ..., v[to - 1]: they end up first and last.
template <int kFrom, int kTo>
HWY_INLINE void drop_ends(V* v) {
  constexpr int kCount = kTo - kFrom, kHalf = kCount / 2;
  for (int k = 0; k < kHalf; ++k) sort(v[kFrom + k], v[kTo - 1 - k]);  // the lower ones first, the middle one between
  for (int k = kFrom + 1; k < kFrom + kHalf + kCount % 2; ++k) sort(v[kFrom], v[k]);
  for (int k = kTo - 2; k >= kTo - kHalf - kCount % 2; --k) sort(v[k], v[kTo - 1]);
}

// Of nine, whose columns are sorted.
HWY_INLINE V median_of_9(const uint8_t* const* sorted, size_t i, size_t step) {
  const Bytes b;
  const auto at = [&](int rank, size_t column) HWY_ATTR { return hn::LoadU(b, sorted[rank] + i + column * step); };
  V low = hn::Max(hn::Max(at(0, 0), at(0, 1)), at(0, 2));
  V high = hn::Min(hn::Min(at(2, 0), at(2, 1)), at(2, 2));
  V first = at(1, 0), middle = at(1, 1), last = at(1, 2);
  sort(first, middle, last);
  sort(low, middle, high);
  return middle;
}

// Of 25: once the ranks of sorted columns are sorted too, six are certainly too low and six too high. Of the others the
// ends are dropped, one by one.
HWY_INLINE V median_of_25(const uint8_t* const* sorted, size_t i, size_t step) {
  const Bytes b;
  V m[5][5];
  for (int rank = 0; rank < 5; ++rank) {
    for (size_t column = 0; column < 5; ++column) m[rank][column] = hn::LoadU(b, sorted[rank] + i + column * step);
    sort(m[rank][0], m[rank][1], m[rank][2], m[rank][3], m[rank][4]);
  }
  V v[13] = {m[0][3], m[0][4], m[1][2], m[1][3], m[1][4], m[2][1], m[2][2],
             m[2][3], m[3][0], m[3][1], m[3][2], m[4][0], m[4][1]};
  drop_ends<0, 8>(v);  // of 8 of 13 neither the least nor the greatest is the median
  std::swap(v[7], v[8]);
  drop_ends<1, 8>(v);
  std::swap(v[7], v[9]);
  drop_ends<2, 8>(v);
  std::swap(v[7], v[10]);
  drop_ends<3, 8>(v);
  std::swap(v[7], v[11]);
  drop_ends<4, 8>(v);
  std::swap(v[7], v[12]);
  sort(v[5], v[6], v[7]);
  return v[6];
}

// Any other: bit by bit from the highest, the greatest byte that at most half of the others are below.
HWY_INLINE V median_by_bits(const uint8_t* const* rows, int kernel, size_t i, size_t step) {
  const Bytes b;
  const V one = hn::Set(b, 1), half = hn::Set(b, uint8_t(kernel * kernel / 2));
  V found = hn::Zero(b);
  for (int bit = 128; bit; bit /= 2) {
    const V candidate = hn::Or(found, hn::Set(b, uint8_t(bit)));
    V below = hn::Zero(b);
    for (int y = 0; y < kernel; ++y)
      for (int x = 0; x < kernel; ++x) {
        const V value = hn::LoadU(b, rows[y] + i + size_t(x) * step);
        below = hn::Add(below, hn::Min(hn::SaturatedSub(candidate, value), one));
      }
    found = hn::IfThenElse(hn::Eq(hn::Min(below, half), below), candidate, found);
  }
  return found;
}

// Sorts each column of three or five rows into as many rows.
void sort_columns(const uint8_t* const* rows, int kernel, size_t bytes, uint8_t* const* sorted) {
  const Bytes b;
  for (size_t i = 0; i < bytes; i += hn::Lanes(b)) {
    V v[5];
    for (int k = 0; k < kernel; ++k) v[k] = hn::LoadU(b, rows[k] + i);
    if (kernel == 3) sort(v[0], v[1], v[2]);
    else sort(v[0], v[1], v[2], v[3], v[4]);
    for (int k = 0; k < kernel; ++k) hn::StoreU(v[k], b, sorted[k] + i);
  }
}

template <class Median>
HWY_INLINE void median_row(uint8_t* out, size_t bytes, Median median) {
  const Bytes b;
  const size_t lanes = hn::Lanes(b);
  size_t i = 0;
  for (; i + lanes <= bytes; i += lanes) hn::StoreU(median(i), b, out + i);
  if (i == bytes) return;
  uint8_t made[HWY_MAX_BYTES];
  hn::StoreU(median(i), b, made);
  std::memcpy(out + i, made, bytes - i);
}

// rows: of the source, from the first pixel of the margin on. memory: as many rows, for sorted columns.
void median_filter_row(const uint8_t* const* rows, int kernel, size_t step, uint8_t* const* memory, uint8_t* out,
                       size_t bytes) {
  if (kernel <= 5) sort_columns(rows, kernel, bytes + size_t(kernel - 1) * step, memory);
  if (kernel == 3) return median_row(out, bytes, [=](size_t i) HWY_ATTR { return median_of_9(memory, i, step); });
  if (kernel == 5) return median_row(out, bytes, [=](size_t i) HWY_ATTR { return median_of_25(memory, i, step); });
  median_row(out, bytes, [=](size_t i) HWY_ATTR { return median_by_bits(rows, kernel, i, step); });
}

}  // namespace
}  // namespace HWY_NAMESPACE
}  // namespace fastfeed
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace fastfeed {

HWY_EXPORT(median_filter_row);

void median_blur(Image& image, int kernel, Scratch& scratch) {
  constexpr int kMost = 15;  // so that a byte counts its pixels
  Scratch::Frame frame(scratch);
  const int half = kernel / 2;
  const WarpSource source = copy_with_margin(image, {Border::edge, {}}, half, scratch);
  const uint8_t* rows[kMost];
  uint8_t* memory[kMost];
  for (int k = 0; k < kernel; ++k) memory[k] = kernel <= 5 ? frame.bytes(source.row()) : nullptr;
  for (int y = 0; y < image.height; ++y) {
    for (int k = 0; k < kernel; ++k) rows[k] = source.at + size_t(y + k) * source.row();
    HWY_DYNAMIC_DISPATCH(median_filter_row)
    (rows, kernel, size_t(image.channels), memory, image.at + size_t(y) * image.row(), image.row());
  }
}

}  // namespace fastfeed
#endif
