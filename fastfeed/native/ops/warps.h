// An image seen through a matrix: rotation, affine maps, perspective.
#pragma once

#include "image/image.h"
#include "ops/window.h"

namespace fastfeed {

enum class Interpolation : int { bilinear = 0, nearest = 1 };

// An image, and what lies beyond its edge. That is drawn around it as far as `margin` pixels.
struct WarpSource {
  const uint8_t* at;  // of the margin
  int height, width, channels;
  Border border;
  int margin = 0;

  WarpSource(const Image& in, const Border& beyond)
      : at(in.at), height(in.height), width(in.width), channels(in.channels), border(beyond) {}
  bool has_border() const { return border.mode != Border::constant; }
  size_t row() const { return size_t(width + 2 * margin) * size_t(channels); }
  // The pixel at any place.
  const uint8_t* pixel(int y, int x) const {
    const bool inside = y >= 0 && y < height && x >= 0 && x < width;
    if (!inside) {
      if (!has_border()) return border.fill;
      y = source_of(y, height), x = source_of(x, width);
    }
    return at + size_t(y + margin) * row() + size_t(x + margin) * size_t(channels);
  }
  // The place in [0, length) whose pixel is shown at one outside of it.
  int source_of(int place, int length) const;
};

// A copy of the image with `margin` pixels of its border; readable for 64 bytes beyond its end.
WarpSource copy_with_margin(const Image& in, const Border& border, int margin, Scratch& scratch);

// A copy of the image with as much of its border as a warp into `height` x `width` pixels is likely to need.
WarpSource copy_with_border(const Image& in, const Border& border, const double* matrix, int height, int width,
                            Scratch& scratch);

// Fill `out` (other memory, the same channels) from `in`. matrix: 9 numbers, rows first, from output to input
// coordinates (x, y, 1) with pixel centers at +0.5.
void warp(const WarpSource& in, const double* matrix, Interpolation filter, Image& out);
bool is_identity(const double* matrix);

}  // namespace fastfeed
