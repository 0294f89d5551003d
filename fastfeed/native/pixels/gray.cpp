#include "pixels/tables.h"
#include "pixels/vbmi_lookup.h"

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "pixels/gray.cpp"
#include <hwy/foreach_target.h>
#include <hwy/highway.h>

#include "pixels/pixels-inl.h"

HWY_BEFORE_NAMESPACE();
namespace fastfeed {
namespace HWY_NAMESPACE {
namespace {

// Pillow's L of ITU-R 601: round((0.299 r + 0.587 g + 0.114 b)) in 16 bits behind the point.
#if HWY_TARGET == HWY_SCALAR

void gray_pixels(uint8_t* rgb, size_t pixels) {
  for (uint8_t* p = rgb; p < rgb + 3 * pixels; p += 3)
    p[0] = p[1] = p[2] = uint8_t((19595u * p[0] + 38470u * p[1] + 7471u * p[2] + 0x8000u) >> 16);
}

#else

// 38470 does not fit into 15 bits and comes in two halves.
void gray_pixels(uint8_t* rgb, size_t pixels) {
  const V16 first = pair_of(19595, 19235), then = pair_of(19235, 7471);
  const auto levels = [&](V16 rg, V16 gb) HWY_ATTR {
    return hn::ShiftRight<16>(hn::Add(hn::Add(pair_dot(rg, first), pair_dot(gb, then)), hn::Set(I32(), 0x8000)));
  };
  const hn::ScalableTag<uint8_t> d;
  using V = hn::Vec<hn::ScalableTag<uint8_t>>;
  each_register(rgb, pixels, [&](V& r, V& g, V& b) HWY_ATTR {
    V rg = hn::InterleaveLower(d, r, g), gb = hn::InterleaveLower(d, g, b);
    const V16 low = packed(levels(lower_bytes(rg), lower_bytes(gb)), levels(upper_bytes(rg), upper_bytes(gb)));
    rg = hn::InterleaveUpper(d, r, g), gb = hn::InterleaveUpper(d, g, b);
    const V16 high = packed(levels(lower_bytes(rg), lower_bytes(gb)), levels(upper_bytes(rg), upper_bytes(gb)));
    r = g = b = packed(low, high);
  });
}

#endif

}  // namespace
}  // namespace HWY_NAMESPACE
}  // namespace fastfeed
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace fastfeed {
namespace {

#ifdef FASTFEED_VBMI
// 16 pixels as 32 bits each, from 16 bits per channel. 38470 does not fit into 15 bits and comes in two halves.
FASTFEED_VBMI inline __m512i levels(__m512i red_green, __m512i green_blue) {
  const __m512i first = _mm512_madd_epi16(red_green, _mm512_set1_epi32(19235 << 16 | 19595));
  const __m512i second = _mm512_madd_epi16(green_blue, _mm512_set1_epi32(7471 << 16 | 19235));
  return _mm512_srli_epi32(_mm512_add_epi32(_mm512_add_epi32(first, second), _mm512_set1_epi32(0x8000)), 16);
}

// 32 pixels as 16 bits each. What is unpacked in quarters of a register is packed in quarters again.
FASTFEED_VBMI inline __m512i levels(__m512i red, __m512i green, __m512i blue) {
  return _mm512_packus_epi32(levels(_mm512_unpacklo_epi16(red, green), _mm512_unpacklo_epi16(green, blue)),
                             levels(_mm512_unpackhi_epi16(red, green), _mm512_unpackhi_epi16(green, blue)));
}

FASTFEED_VBMI size_t gray_vbmi(uint8_t* rgb, size_t pixels) {
  const Channels channels;
  uint8_t thirds[3][64];
  for (int j = 0; j < 192; ++j) thirds[j / 64][j % 64] = uint8_t(j / 3);
  const __m512i zero = _mm512_setzero_si512();
  size_t i = 0;
  for (; i + 64 <= pixels; i += 64) {
    uint8_t* p = rgb + 3 * i;
    const __m512i v[3] = {_mm512_loadu_si512(p), _mm512_loadu_si512(p + 64), _mm512_loadu_si512(p + 128)};
    const __m512i r = channels.pick(v, 0), g = channels.pick(v, 1), b = channels.pick(v, 2);
    const __m512i low =
        levels(_mm512_unpacklo_epi8(r, zero), _mm512_unpacklo_epi8(g, zero), _mm512_unpacklo_epi8(b, zero));
    const __m512i high =
        levels(_mm512_unpackhi_epi8(r, zero), _mm512_unpackhi_epi8(g, zero), _mm512_unpackhi_epi8(b, zero));
    const __m512i made = _mm512_packus_epi16(low, high);
    for (int k = 0; k < 3; ++k)
      _mm512_storeu_si512(p + 64 * k, _mm512_permutexvar_epi8(_mm512_loadu_si512(thirds[k]), made));
  }
  return i;
}
#endif

}  // namespace

HWY_EXPORT(gray_pixels);

void gray(uint8_t* rgb, size_t pixels) {
  size_t done = 0;
#ifdef FASTFEED_VBMI
  if (has_vbmi()) done = gray_vbmi(rgb, pixels);
#endif
  HWY_DYNAMIC_DISPATCH(gray_pixels)(rgb + 3 * done, pixels - done);
}

}  // namespace fastfeed
#endif
