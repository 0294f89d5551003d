// Masks that move the way their image's pixels do.
#pragma once

#include <cstdint>

#include "image/image.h"

namespace fastfeed {

// One move of an image. back: 9 numbers, rows first, from output to input coordinates (x, y, 1) with pixel centers at
// +0.5. limit: top, left, height, width of what exists of the input.
struct MaskMove {
  const double* back;
  const double* limit;
  int height, width;

  bool is_straight() const { return back[1] == 0 && back[3] == 0 && back[6] == 0 && back[7] == 0; }
};

// Fill `out` (other memory) from a mask, one channel each: the nearest pixel, or `ignore` where nothing exists.
void move_mask(const Image& mask, const MaskMove& move, uint8_t ignore, Image& out, Scratch& scratch);

}  // namespace fastfeed
