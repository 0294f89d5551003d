// The filters of PNG (ISO/IEC 15948, clause 9): a byte is what stands in the file plus a prediction from the bytes to the
// left, above, and above to the left.
#include <cstdlib>
#include <cstring>

#include "png/png.h"

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "png/png_filters.cpp"
#include <hwy/foreach_target.h>
#include <hwy/highway.h>

HWY_BEFORE_NAMESPACE();
namespace fastfeed {
namespace HWY_NAMESPACE {
namespace {
namespace hn = hwy::HWY_NAMESPACE;

void up(const uint8_t* in, const uint8_t* above, uint8_t* out, size_t size) {
  for (size_t i = 0; i < size; ++i) out[i] = uint8_t(in[i] + above[i]);
}

template <int kPixel>
void sub(const uint8_t* in, uint8_t* out, size_t size) {
  uint8_t left[kPixel] = {};
  for (size_t i = 0; i + kPixel <= size; i += kPixel)
    for (size_t c = 0; c < kPixel; ++c) out[i + c] = left[c] = uint8_t(left[c] + in[i + c]);
}

template <int kPixel>
void average(const uint8_t* in, const uint8_t* above, uint8_t* out, size_t size) {
  unsigned left[kPixel] = {};
  for (size_t i = 0; i + kPixel <= size; i += kPixel)
    for (size_t c = 0; c < kPixel; ++c) out[i + c] = uint8_t(left[c] = uint8_t(in[i + c] + (left[c] + above[i + c]) / 2));
}

#if HWY_TARGET != HWY_SCALAR

constexpr hn::FixedTag<uint8_t, 8> kBytes{};
constexpr hn::FixedTag<int16_t, 8> kVbmi{};
using Pixel = hn::Vec<decltype(kVbmi)>;  

HWY_INLINE Pixel load(const uint8_t* at) { return hn::PromoteTo(kVbmi, hn::LoadU(kBytes, at)); }

// The next pixel of a row, of at most eight bytes, below `above`; `left` and `corner` move on.
HWY_INLINE Pixel next_of(Pixel& left, Pixel& corner, const uint8_t* in, Pixel above, uint8_t* out) {
  const auto a = hn::Sub(above, corner), b = hn::Sub(left, corner);
  const auto to_left = hn::Abs(a), to_above = hn::Abs(b), to_corner = hn::Abs(hn::Add(a, b));
  const auto least = hn::Min(hn::Min(to_left, to_above), to_corner);
  const auto other = hn::IfThenElse(hn::Eq(to_above, least), above, corner);
  const auto near = hn::IfThenElse(hn::Eq(to_left, least), left, other);
  left = hn::And(hn::Add(near, load(in)), hn::Set(kVbmi, 255));
  corner = above;
  hn::StoreU(hn::DemoteTo(kBytes, left), kBytes, out);
  return left;
}

template <int kPixel>
void paeth(const uint8_t* in, const uint8_t* above, uint8_t* out, size_t size) {
  auto left = hn::Zero(kVbmi), corner = hn::Zero(kVbmi);
  for (size_t i = 0; i < size; i += kPixel) next_of(left, corner, in + i, load(above + i), out + i);
}

// Two rows at once, the lower one a pixel behind: a pixel waits for the one before, but neither row for the other.
template <int kPixel>
void paeth_twice(const uint8_t* const (&in)[2], const uint8_t* above, uint8_t* const (&out)[2], size_t size) {
  auto left = hn::Zero(kVbmi), corner = left, lower_left = left, lower_corner = left;
  auto made = next_of(left, corner, in[0], load(above), out[0]);
  for (size_t i = kPixel; i < size; i += kPixel) {
    const auto next = next_of(left, corner, in[0] + i, load(above + i), out[0] + i);
    next_of(lower_left, lower_corner, in[1] + i - kPixel, made, out[1] + i - kPixel);
    made = next;
  }
  const size_t last = (size - 1) / kPixel * kPixel;
  next_of(lower_left, lower_corner, in[1] + last, made, out[1] + last);
}

#else

// The nearest of left, above, and corner to left + above - corner, in this order where two are.
uint8_t nearest(int left, int above, int corner) {
  const int a = std::abs(above - corner), b = std::abs(left - corner), c = std::abs(left + above - 2 * corner);
  return uint8_t(a <= b && a <= c ? left : b <= c ? above : corner);
}

template <int kPixel>
void paeth(const uint8_t* in, const uint8_t* above, uint8_t* out, size_t size) {
  for (ptrdiff_t i = 0; i < ptrdiff_t(size); ++i)
    out[i] = uint8_t(in[i] + nearest(out[i - kPixel], above[i], above[i - kPixel]));
}

template <int kPixel>
void paeth_twice(const uint8_t* const (&in)[2], const uint8_t* above, uint8_t* const (&out)[2], size_t size) {
  paeth<kPixel>(in[0], above, out[0], size);
  paeth<kPixel>(in[1], out[0], out[1], size);
}

#endif

template <int kPixel>
bool undo(uint8_t filter, const uint8_t* in, const uint8_t* above, uint8_t* out, size_t size) {
  switch (filter) {
    case 0: std::memcpy(out, in, size); return true;
    case 1: sub<kPixel>(in, out, size); return true;
    case 2: up(in, above, out, size); return true;
    case 3: average<kPixel>(in, above, out, size); return true;
    case 4: paeth<kPixel>(in, above, out, size); return true;
    default: return false;
  }
}

bool undo_row(uint8_t filter, int pixel, const uint8_t* in, const uint8_t* above, uint8_t* out, size_t size) {
  switch (pixel) {
    case 1: return undo<1>(filter, in, above, out, size);
    case 2: return undo<2>(filter, in, above, out, size);
    case 3: return undo<3>(filter, in, above, out, size);
    case 4: return undo<4>(filter, in, above, out, size);
    case 6: return undo<6>(filter, in, above, out, size);
    case 8: return undo<8>(filter, in, above, out, size);
    default: return false;
  }
}

void undo_two(int pixel, const uint8_t* const (&in)[2], const uint8_t* above, uint8_t* const (&out)[2], size_t size) {
  switch (pixel) {
    case 1: return paeth_twice<1>(in, above, out, size);
    case 2: return paeth_twice<2>(in, above, out, size);
    case 3: return paeth_twice<3>(in, above, out, size);
    case 4: return paeth_twice<4>(in, above, out, size);
    case 6: return paeth_twice<6>(in, above, out, size);
    default: return paeth_twice<8>(in, above, out, size);
  }
}

}  // namespace
}  // namespace HWY_NAMESPACE
}  // namespace fastfeed
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace fastfeed {
namespace {

HWY_EXPORT(undo_row);
HWY_EXPORT(undo_two);

}  // namespace

bool unfilter(uint8_t filter, int pixel, const uint8_t* in, const uint8_t* above, uint8_t* out, size_t size) {
  return HWY_DYNAMIC_DISPATCH(undo_row)(filter, pixel, in, above, out, size);
}

void unfilter_two(int pixel, const uint8_t* const (&in)[2], const uint8_t* above, uint8_t* const (&out)[2],
                  size_t size) {
  HWY_DYNAMIC_DISPATCH(undo_two)(pixel, in, above, out, size);
}

}  // namespace fastfeed
#endif
