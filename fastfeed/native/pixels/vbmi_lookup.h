// Lookup of 64 bytes at a time on CPUs with AVX-512 VBMI. Included by code that also has a plain path.
#pragma once

#include "pixels/tables.h"

#if defined(__x86_64__) && defined(__GNUC__)
#pragma GCC diagnostic push
#ifndef __clang__
#pragma GCC diagnostic ignored "-Wmaybe-uninitialized"  // GCC 12 warns of its own header
#endif
#include <immintrin.h>
#pragma GCC diagnostic pop
#define FASTFEED_VBMI __attribute__((target("avx512f,avx512bw,avx512vbmi")))

namespace fastfeed {

constexpr uint64_t kThird = 0x9249249249249249;  // bits 0, 3, 6, ..., 63

struct Table {
  __m512i part[4];
};

FASTFEED_VBMI inline Table load(const uint8_t* table) {
  Table t;
  for (int k = 0; k < 4; ++k) t.part[k] = _mm512_loadu_si512(table + 64 * k);
  return t;
}

// Each instruction looks up in 128 entries by the lower seven bits; the eighth selects one of the two results.
FASTFEED_VBMI inline __m512i look(const Table& t, __m512i bytes) {
  const __m512i low = _mm512_permutex2var_epi8(t.part[0], bytes, t.part[1]);
  const __m512i high = _mm512_permutex2var_epi8(t.part[2], bytes, t.part[3]);
  return _mm512_mask_blend_epi8(_mm512_movepi8_mask(bytes), low, high);
}

// Takes the 64 bytes of one channel out of 64 pixels of three.
class Channels {
 public:
  Channels() {
    for (int c = 0; c < 3; ++c)
      for (int j = 0; j < 64; ++j) {
        const int from = 3 * j + c;
        first_[c][j] = uint8_t(from < 128 ? from : 0);
        then_[c][j] = uint8_t(from < 128 ? j : from - 64);
      }
  }
  FASTFEED_VBMI __m512i pick(const __m512i (&pixels)[3], int c) const {
    const __m512i two = _mm512_permutex2var_epi8(pixels[0], _mm512_loadu_si512(first_[c]), pixels[1]);
    return _mm512_permutex2var_epi8(two, _mm512_loadu_si512(then_[c]), pixels[2]);
  }

 private:
  uint8_t first_[3][64], then_[3][64];  // places in the first two registers; in what they gave, and the third
};

}  // namespace fastfeed
#endif
