// Copies and mirror images of pixels.
#pragma once

#include <cstddef>
#include <cstdint>

#include "image/image.h"

namespace fastfeed {

// Copy rows that are `from_row` and `to_row` bytes apart, each mirrored left to right where `mirrored`. Nothing beyond
// the pixels is read or written; the two must not overlap.
void copy_rows(const uint8_t* from, ptrdiff_t from_row, uint8_t* to, ptrdiff_t to_row, int height, int width,
               int channels, bool mirrored);

// Mirror an image in place: top to bottom, left to right.
void mirror(const Image& image, const bool* flip);

}  // namespace fastfeed
