// The two passes of Pillow's resampling.
#pragma once

#include "ops/pillow_weights.h"

namespace fastfeed {

// Rows of an image, and where the memory that may be read ends.
struct Pixels {
  const uint8_t* at;
  ptrdiff_t row;
  int height;
  const uint8_t* end;
};

// Bytes to reserve for a row of this many bytes, so that the passes read what lies beyond it as it is.
inline size_t padded(size_t bytes) { return (bytes + 63) / 64 * 64 + 64; }

// Every row becomes weights.outputs pixels.
void resize_across(const Weights& weights, int channels, const Pixels& in, uint8_t* out, ptrdiff_t out_row,
                   Scratch& scratch);
// `bytes` of each row become weights.outputs rows.
void resize_down(const Weights& weights, const Pixels& in, size_t bytes, uint8_t* out, ptrdiff_t out_row,
                 Scratch& scratch);

}  // namespace fastfeed
