// JPEG's colors: from RGB to YCbCr with chroma averaged over 2 x 2 pixels, and back with chroma interpolated, with the
// integer arithmetic of libjpeg. Included once per SIMD target.
#if defined(FASTFEED_OPS_JPEG_COLORS_INL_H) == defined(HWY_TARGET_TOGGLE)
#ifdef FASTFEED_OPS_JPEG_COLORS_INL_H
#undef FASTFEED_OPS_JPEG_COLORS_INL_H
#else
#define FASTFEED_OPS_JPEG_COLORS_INL_H
#endif

#include <hwy/highway.h>

#include <algorithm>
#include <cstring>

#include "ops/jpeg_blocks-inl.h"

HWY_BEFORE_NAMESPACE();
namespace fastfeed {
namespace HWY_NAMESPACE {
namespace {

#if HWY_TARGET == HWY_SCALAR

constexpr int kPixels = 2;  // at once

void split_pixels(const uint8_t* first, const uint8_t* second, uint8_t* y0, uint8_t* y1, uint8_t* cb, uint8_t* cr,
                  int bias) {
  int blue = bias, red = bias;
  for (int k = 0; k < 2; ++k) {
    for (int row = 0; row < 2; ++row) {
      const uint8_t* p = (row ? second : first) + 3 * k;
      const int y = (19595 * p[0] + 38470 * p[1] + 7471 * p[2] + 32768) >> 16;
      if (row) y1[k] = uint8_t(y);
      else y0[k] = uint8_t(y);
      blue += (-11059 * p[0] - 21709 * p[1] + 32768 * p[2] + (128 << 16) + 32767) >> 16;
      red += (32768 * p[0] - 27439 * p[1] - 5329 * p[2] + (128 << 16) + 32767) >> 16;
    }
  }
  *cb = uint8_t(blue >> 2), *cr = uint8_t(red >> 2);
}

void merge_pixels(const uint8_t* y, const int16_t* cb, const int16_t* cr, uint8_t* rgb) {
  for (int k = 0; k < 2; ++k) {
    const int next = k ? 1 : -1, blue = ((3 * cb[0] + cb[next] + 8 - k) >> 4) - 128;
    const int red = ((3 * cr[0] + cr[next] + 8 - k) >> 4) - 128;
    const int made[3] = {y[k] + ((91881 * red + 32768) >> 16), y[k] + ((-22554 * blue - 46802 * red + 32768) >> 16),
                         y[k] + ((116130 * blue + 32768) >> 16)};
    for (int c = 0; c < 3; ++c) rgb[3 * k + c] = uint8_t(made[c] < 0 ? 0 : made[c] > 255 ? 255 : made[c]);
  }
}

#else

constexpr int kPixels = HWY_MAX_BYTES;  // at once
using PixelBytes = hn::ScalableTag<uint8_t>;
using ByteV = hn::Vec<PixelBytes>;

HWY_INLINE WordV even_of(ByteV v) { return hn::And(hn::BitCast(BlockWords(), v), hn::Set(BlockWords(), 255)); }
HWY_INLINE WordV odd_of(ByteV v) {
  return hn::BitCast(BlockWords(), hn::ShiftRight<8>(hn::BitCast(hn::RebindToUnsigned<BlockWords>(), v)));
}
HWY_INLINE ByteV joined(WordV even, WordV odd) {
  return hn::BitCast(PixelBytes(), hn::Or(even, hn::ShiftLeft<8>(odd)));
}

struct Ycc {
  WordV y, cb, cr;
};

HWY_INLINE WordV upper_words(Wide v, int bias) {
  const auto add = hn::Set(BlockInts(), bias);
  return hn::ReorderDemote2To(BlockWords(), hn::ShiftRight<16>(hn::Add(v.low, add)),
                              hn::ShiftRight<16>(hn::Add(v.high, add)));
}

// Factors of more than 15 bits come in two halves.
HWY_INLINE Ycc ycc_of(WordV r, WordV g, WordV b) {
  const Pairs rg(r, g), gb(g, b), rb(r, b);
  constexpr int kBias = (128 << 16) + 32767;
  return {upper_words(rg.times(19595, 19235) + gb.times(19235, 7471), 32768),
          upper_words(gb.times(-21709, 16384) + rb.times(-11059, 16384), kBias),
          upper_words(rg.times(16384, -27439) + rb.times(16384, -5329), kBias)};
}

// kPixels of two rows each.
void split_pixels(const uint8_t* first, const uint8_t* second, uint8_t* y0, uint8_t* y1, uint8_t* cb, uint8_t* cr,
                  int) {
  const PixelBytes d;
  const hn::Rebind<uint8_t, BlockWords> half;
  const auto bias = words_of_pair(1, 2);  // alternates, so that chroma is not raised
  auto blue = bias, red = bias;
  for (int row = 0; row < 2; ++row) {
    ByteV r, g, b;
    hn::LoadInterleaved3(d, row ? second : first, r, g, b);
    const Ycc even = ycc_of(even_of(r), even_of(g), even_of(b)), odd = ycc_of(odd_of(r), odd_of(g), odd_of(b));
    hn::StoreU(joined(even.y, odd.y), d, row ? y1 : y0);
    blue = hn::Add(blue, hn::Add(even.cb, odd.cb));
    red = hn::Add(red, hn::Add(even.cr, odd.cr));
  }
  hn::StoreU(hn::DemoteTo(half, hn::ShiftRight<2>(blue)), half, cb);
  hn::StoreU(hn::DemoteTo(half, hn::ShiftRight<2>(red)), half, cr);
}

struct Rgb {
  WordV r, g, b;
};

HWY_INLINE Rgb rgb_of(WordV y, WordV cb, WordV cr) {
  const BlockWords w;
  const auto one = hn::Set(w, 1), low = hn::Zero(w), high = hn::Set(w, 255);
  // x * factor / 2**16, rounded: x * 2 * factor / 2**16 is cut off, but half of that is rounded
  const auto share = [&](WordV twice, int factor) {
    return hn::ShiftRight<1>(hn::Add(hn::MulHigh(twice, hn::Set(w, int16_t(factor))), one));
  };
  const auto clamped = [&](WordV v) { return hn::Min(hn::Max(v, low), high); };
  const auto twice_cb = hn::Add(cb, cb), twice_cr = hn::Add(cr, cr);
  const auto green = upper_words(Pairs(cb, cr).times(-22554, 65536 - 46802), 32768);
  return {clamped(hn::Add(hn::Add(y, cr), share(twice_cr, 91881 - 65536))),
          clamped(hn::Sub(hn::Add(y, green), cr)),
          clamped(hn::Add(hn::Add(y, twice_cb), share(twice_cb, 116130 - 131072)))};
}

// kPixels, from sums of 3 parts of the nearer and 1 of the further row of chroma.
void merge_pixels(const uint8_t* y, const int16_t* cb, const int16_t* cr, uint8_t* rgb) {
  const PixelBytes d;
  const BlockWords w;
  const auto center = hn::Set(w, 128);
  const auto at = [&](const int16_t* sums, int k) {  // of even pixels for k = 0, of odd ones for k = 1
    const auto here = hn::LoadU(w, sums), next = hn::LoadU(w, sums + 2 * k - 1);
    const auto sum = hn::Add(hn::Add(here, hn::ShiftLeft<1>(here)), hn::Add(next, hn::Set(w, int16_t(8 - k))));
    return hn::Sub(hn::ShiftRight<4>(sum), center);
  };
  const auto luma = hn::LoadU(d, y);
  const Rgb even = rgb_of(even_of(luma), at(cb, 0), at(cr, 0)), odd = rgb_of(odd_of(luma), at(cb, 1), at(cr, 1));
  hn::StoreInterleaved3(joined(even.r, odd.r), joined(even.g, odd.g), joined(even.b, odd.b), d, rgb);
}
#endif

// Two rows of RGB as luma, and chroma of half the width. Beyond the edge, what is written continues as if the last pixel
// were repeated, up to a multiple of 16 pixels and further.
void split_rows(const uint8_t* first, const uint8_t* second, int width, uint8_t* y0, uint8_t* y1, uint8_t* cb,
                uint8_t* cr) {
  int x = 0;
  const auto split = [&](const uint8_t* a, const uint8_t* b) {
    split_pixels(a, b, y0 + x, y1 + x, cb + x / 2, cr + x / 2, 1 + x / 2 % 2);
  };
  for (; x + kPixels <= width; x += kPixels) split(first + 3 * x, second + 3 * x);
  const int end = (width + 15) / 16 * 16;
  uint8_t rest[2][3 * kPixels] = {};
  for (; x < end; x += kPixels) {
    const int there = std::clamp(width - x, 0, kPixels);
    for (int row = 0; row < 2; ++row) {
      const uint8_t* pixels = row ? second : first;
      if (there) std::memcpy(rest[row], pixels + 3 * x, size_t(3 * there));
      for (int k = there; k < std::min(end - x, kPixels); ++k)
        std::memcpy(rest[row] + 3 * k, pixels + 3 * (width - 1), 3);
    }
    split(rest[0], rest[1]);
  }
}

void add_chroma(const uint8_t* near, const uint8_t* far, int width, int16_t* sums) {
  for (int x = 0; x < width; ++x) sums[x] = int16_t(3 * near[x] + far[x]);
  sums[-1] = sums[0], sums[width] = sums[width - 1];
}

// A row of RGB. near, far: rows of Cb and of Cr; sums: memory for `room` numbers each, more than half the width by 64.
void merge_row(const uint8_t* y, const uint8_t* const (&near)[2], const uint8_t* const (&far)[2], int width,
               uint8_t* rgb, int16_t* sums, size_t room) {
  int16_t* chroma[2] = {sums + 32, sums + room + 32};
  const int chroma_width = (width + 1) / 2;
  uint8_t rest[3 * kPixels];
  if (chroma_width <= 2) {  // libjpeg repeats chroma of so few columns
    for (int x = 0; x < width; x += 2) {
      for (int c = 0; c < 2; ++c) std::fill(chroma[c] - 1, chroma[c] + 2, int16_t(4 * near[c][x / 2]));
      merge_pixels(y + x, chroma[0], chroma[1], rest);
      std::memcpy(rgb + 3 * x, rest, size_t(3 * std::min(width - x, 2)));
    }
    return;
  }
  for (int c = 0; c < 2; ++c) add_chroma(near[c], far[c], chroma_width, chroma[c]);
  int x = 0;
  for (; x + kPixels <= width; x += kPixels) merge_pixels(y + x, chroma[0] + x / 2, chroma[1] + x / 2, rgb + 3 * x);
  if (x == width) return;
  merge_pixels(y + x, chroma[0] + x / 2, chroma[1] + x / 2, rest);
  std::memcpy(rgb + 3 * x, rest, size_t(3 * (width - x)));
}

}  // namespace
}  // namespace HWY_NAMESPACE
}  // namespace fastfeed
HWY_AFTER_NAMESPACE();
#endif
