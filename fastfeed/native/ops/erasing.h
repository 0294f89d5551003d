// Parts of an image that are hidden. fill: a byte per channel. Boxes lie within the image.
#pragma once

#include "image/image.h"

namespace fastfeed {

void erase(Image& image, int top, int left, int height, int width, const uint8_t* fill);
// With bytes of a table, read from `offset` on for the image's first byte, wrapping around.
void erase_with_noise(Image& image, int top, int left, int height, int width, int64_t offset, const uint8_t* table,
                      int64_t length);
// Squares of `side` pixels, one per unit x unit pixels; one of them begins at (top, left).
void grid_mask(Image& image, int unit, int side, int top, int left, const uint8_t* fill, Scratch& scratch);

}  // namespace fastfeed
