// How JPEG rounds coefficients: the tables of a quality, as libjpeg makes them.
#pragma once

#include <cstdint>

namespace fastfeed {

// Coefficients by rows. A division by 8 steps as multiplications, of up to 16 bits and exact:
// ((number + half) * reciprocal >> 16) * scale >> 16.
struct JpegTable {
  alignas(64) uint16_t step[64], half[64], reciprocal[64], scale[64];
};

// quality: 1 to 100; clamped.
void fill_table(JpegTable& table, int quality, bool chroma);

}  // namespace fastfeed
