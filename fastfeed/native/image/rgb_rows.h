// Rows of samples as PNG and TIFF store them, as RGB of 8 bits.
#pragma once

#include <cstddef>
#include <cstdint>

#include "image/row_reader.h"

namespace fastfeed {

// Interleaved samples: gray or RGB, with alpha or without, of one or two bytes each.
struct SampleLayout {
  int colors;  // 1, 3
  bool alpha;  // unassociated; it comes last
  int bytes;   // of a sample
  int upper;   // which of the bytes is shown: of two the upper one

  int samples() const { return colors + alpha; }
  size_t pixel() const { return size_t(samples()) * size_t(bytes); }
};

// `n` pixels, transparent ones over the matte.
void samples_to_rgb(const SampleLayout& layout, const uint8_t* in, size_t n, const Matte& matte, uint8_t* out);

}  // namespace fastfeed
