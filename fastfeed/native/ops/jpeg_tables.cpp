#include "ops/jpeg_tables.h"

#include <algorithm>

namespace fastfeed {
namespace {

// Annex K of ITU-T T.81.
constexpr uint8_t kLuma[64] = {
    16, 11, 10, 16, 24, 40, 51, 61,    //
    12, 12, 14, 19, 26, 58, 60, 55,    //
    14, 13, 16, 24, 40, 57, 69, 56,    //
    14, 17, 22, 29, 51, 87, 80, 62,    //
    18, 22, 37, 56, 68, 109, 103, 77,  //
    24, 35, 55, 64, 81, 104, 113, 92,  //
    49, 64, 78, 87, 103, 121, 120, 101, 72, 92, 95, 98, 112, 100, 103, 99,
};
constexpr uint8_t kChroma[64] = {
    17, 18, 24, 47, 99, 99, 99, 99,  //
    18, 21, 26, 66, 99, 99, 99, 99,  //
    24, 26, 56, 99, 99, 99, 99, 99,  //
    47, 66, 99, 99, 99, 99, 99, 99,  //
    99, 99, 99, 99, 99, 99, 99, 99,  //
    99, 99, 99, 99, 99, 99, 99, 99,  //
    99, 99, 99, 99, 99, 99, 99, 99, 99, 99, 99, 99, 99, 99, 99, 99,
};

}  // namespace

void fill_table(JpegTable& table, int quality, bool chroma) {
  quality = std::clamp(quality, 1, 100);
  const int percent = quality < 50 ? 5000 / quality : 200 - 2 * quality;
  for (int i = 0; i < 64; ++i) {
    const int step = std::clamp(((chroma ? kChroma : kLuma)[i] * percent + 50) / 100, 1, 255);
    // Agner Fog, "Optimizing subroutines in assembly language", on division by a constant
    const uint32_t divisor = uint32_t(step) * 8;
    uint32_t bits = 0;
    while (divisor >> (bits + 1)) ++bits;
    uint32_t shift = 16 + bits, reciprocal = (1u << shift) / divisor, half = divisor / 2;
    const uint32_t rest = (1u << shift) % divisor;
    if (rest == 0) reciprocal /= 2, --shift;  // a power of two, whose reciprocal has 17 bits
    else if (rest <= divisor / 2) ++half;
    else ++reciprocal;
    table.step[i] = uint16_t(step);
    table.half[i] = uint16_t(half);
    table.reciprocal[i] = uint16_t(reciprocal);
    table.scale[i] = uint16_t(1u << (32 - shift));
  }
}

}  // namespace fastfeed
