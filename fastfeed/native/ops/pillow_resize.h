// Pillow's antialiased resampling, byte for byte.
#pragma once

#include "image/axis.h"
#include "image/image.h"

namespace fastfeed {

// Scale a box (top, left, height, width) of `in` to the slot, mirrored top to bottom and left to right as `flip` says:
// what Pillow 13's resize(box=...) gives for an L or RGB image. The box is cut off at the edges of the image.
void resize(const Image& in, const double* box, const bool* flip, Filter filter, const Slot& slot, Scratch& scratch);

}  // namespace fastfeed
