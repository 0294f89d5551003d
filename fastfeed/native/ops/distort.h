// Warps by a field of displacements: every pixel of the result shows its own place of the image, counted in 1/256 of a
// pixel. Sums of noise and levels are integers, the same in any order.
#pragma once

#include <cstdint>

#include "ops/warps.h"

namespace fastfeed {

// Noise, blurred along both axes: weights in 1/16384, an odd number; offsets: into a table of noise, of both axes.
struct Elastic {
  const double* weights;
  int taps;
  float scale;  // 1/256 of a pixel per unit of a sum
  int64_t offsets[2];
  const int16_t* noise;
  int64_t length;
};

void elastic(Image& image, const Elastic& how, const Border& border, Interpolation filter, Scratch& scratch);

// lines: where the `steps` + 1 columns of a grid are in the image, then its rows.
void grid_distortion(Image& image, const double* lines, int steps, const Border& border, Interpolation filter,
                     Scratch& scratch);

}  // namespace fastfeed
