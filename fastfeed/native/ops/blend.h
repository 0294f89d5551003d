// Weighted sums of images: AugMix's versions, and neighboring samples of a batch.
#pragma once

#include "image/image.h"

namespace fastfeed {

// image = the sum of shares[k] * versions[k], k < count, in float32, rounded once; versions[0] may be image.at.
void weighted_sum(Image& image, const uint8_t* const* versions, const double* shares, int count, Scratch& scratch);

// out = share * first + (1 - share) * second, of `count` bytes, rounded to the nearest; share: from 0 to 1. out may be
// first or second.
void blend_bytes(const uint8_t* first, const uint8_t* second, double share, uint8_t* out, size_t count);

}  // namespace fastfeed
