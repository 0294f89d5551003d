#include "clones.h"
#include "wide.h"

namespace fastfeed {
namespace {

// Pillow's L of ITU-R 601: round((0.299 r + 0.587 g + 0.114 b)) in 16 bits behind the point.
inline uint8_t level(const uint8_t* rgb) {
  return uint8_t((19595u * rgb[0] + 38470u * rgb[1] + 7471u * rgb[2] + 0x8000u) >> 16);
}

FASTFEED_CLONES
void gray_plain(uint8_t* rgb, size_t pixels) {
  constexpr size_t kAtOnce = 512;  // separate loops, so that the compiler can vectorize
  uint8_t levels[kAtOnce];
  for (size_t i = 0; i < pixels; i += kAtOnce) {
    const size_t n = pixels - i < kAtOnce ? pixels - i : kAtOnce;
    uint8_t* p = rgb + 3 * i;
    for (size_t k = 0; k < n; ++k) levels[k] = level(p + 3 * k);
    for (size_t k = 0; k < n; ++k) p[3 * k] = p[3 * k + 1] = p[3 * k + 2] = levels[k];
  }
}

#ifdef FASTFEED_WIDE
// 16 pixels as 32 bits each, from 16 bits per channel. 38470 does not fit into 15 bits and comes in two halves.
FASTFEED_WIDE inline __m512i levels(__m512i red_green, __m512i green_blue) {
  const __m512i first = _mm512_madd_epi16(red_green, _mm512_set1_epi32(19235 << 16 | 19595));
  const __m512i second = _mm512_madd_epi16(green_blue, _mm512_set1_epi32(7471 << 16 | 19235));
  return _mm512_srli_epi32(_mm512_add_epi32(_mm512_add_epi32(first, second), _mm512_set1_epi32(0x8000)), 16);
}

// 32 pixels as 16 bits each. What is unpacked in quarters of a register is packed in quarters again.
FASTFEED_WIDE inline __m512i levels(__m512i red, __m512i green, __m512i blue) {
  return _mm512_packus_epi32(levels(_mm512_unpacklo_epi16(red, green), _mm512_unpacklo_epi16(green, blue)),
                             levels(_mm512_unpackhi_epi16(red, green), _mm512_unpackhi_epi16(green, blue)));
}

FASTFEED_WIDE size_t gray_wide(uint8_t* rgb, size_t pixels) {
  const Channels channels;
  uint8_t thirds[3][64];
  for (int j = 0; j < 192; ++j) thirds[j / 64][j % 64] = uint8_t(j / 3);
  const __m512i zero = _mm512_setzero_si512();
  size_t i = 0;
  for (; i + 64 <= pixels; i += 64) {
    uint8_t* p = rgb + 3 * i;
    const __m512i v[3] = {_mm512_loadu_si512(p), _mm512_loadu_si512(p + 64), _mm512_loadu_si512(p + 128)};
    const __m512i r = channels.pick(v, 0), g = channels.pick(v, 1), b = channels.pick(v, 2);
    const __m512i low = levels(_mm512_unpacklo_epi8(r, zero), _mm512_unpacklo_epi8(g, zero), _mm512_unpacklo_epi8(b, zero));
    const __m512i high = levels(_mm512_unpackhi_epi8(r, zero), _mm512_unpackhi_epi8(g, zero), _mm512_unpackhi_epi8(b, zero));
    const __m512i made = _mm512_packus_epi16(low, high);
    for (int k = 0; k < 3; ++k)
      _mm512_storeu_si512(p + 64 * k, _mm512_permutexvar_epi8(_mm512_loadu_si512(thirds[k]), made));
  }
  return i;
}
#endif

}  // namespace

void gray(uint8_t* rgb, size_t pixels) {
  size_t done = 0;
#ifdef FASTFEED_WIDE
  if (wide_look_ups()) done = gray_wide(rgb, pixels);
#endif
  gray_plain(rgb + 3 * done, pixels - done);
}

}  // namespace fastfeed
