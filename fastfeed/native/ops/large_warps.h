// Warps of images with a side that single precision cannot address well.
#pragma once

#include "ops/warps.h"

namespace fastfeed {

// As warp, in double precision, pixel by pixel, and to the bit what Pillow's Image.transform does: bilinear levels are
// cut off rather than rounded, and the image's edge is repeated for half a pixel where small images fade into the fill.
void warp_large(const WarpSource& in, const double* matrix, Interpolation filter, Image& out);

}  // namespace fastfeed
