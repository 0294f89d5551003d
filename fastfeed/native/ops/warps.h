// An image seen through a matrix: rotation, affine maps, perspective.
#pragma once

#include "image/image.h"

namespace fastfeed {

enum class Interpolation : int { bilinear = 0, nearest = 1 };

// Fill `out` (other memory, same size and channels) from `in`. matrix: 9 numbers, rows first, from output to input
// coordinates (x, y, 1) with pixel centers at +0.5. fill: a byte per channel, for what lies outside.
void warp(const Image& in, const double* matrix, Interpolation filter, const uint8_t* fill, Image& out);
bool is_identity(const double* matrix);

}  // namespace fastfeed
