// Polygons that move the way their image's pixels do, drawn as masks.
#pragma once

#include <cstdint>
#include <vector>

#include "image/image.h"

namespace fastfeed {

struct Point {
  double x, y;
};

// One move of an image. forward: 9 numbers, rows first, from input to output coordinates (x, y, 1) with pixel centers
// at +0.5. limit: top, left, height, width of what exists of the input.
struct RingMove {
  const double* forward;
  const double* limit;
};

// What is left of a closed ring after a move: cut off at the limit, and at the horizon of a perspective.
void move_ring(std::vector<Point>& ring, const RingMove& move);

// Cut a closed ring off at the edges of a box: top, left, height, width. One that has no area inside becomes empty.
void cut_ring(std::vector<Point>& ring, const double* box);

// Set the pixels of `out`, one channel, whose centers are inside of a closed ring by the even-odd rule, to 1.
void fill_ring(const std::vector<Point>& ring, Image& out, Scratch& scratch);

}  // namespace fastfeed
