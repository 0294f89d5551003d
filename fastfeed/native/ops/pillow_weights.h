// The weights of Pillow's resampling: how much each pixel of the input counts for each pixel of the output.
#pragma once

#include <cstddef>
#include <cstdint>

#include "image/axis.h"
#include "image/image.h"

namespace fastfeed {

// [start, end) of `inputs` pixels becomes `outputs` pixels. Pillow takes its box in single precision.
struct Stretch {
  float start, end;
  int inputs, outputs;

  // Nothing to compute: output i is input start + i.
  bool copies() const { return double(end - start) == double(outputs) && start == float(int(start)); }
};

// Output i is the sum of weight[i * taps + k] * input[first[i] + k], k < count[i], with 22 bits behind the point. Zeros
// at both ends are left out, so that count may be 0; what follows the last weight of an output is zero.
struct Weights {
  static constexpr int kBits = 22;
  int outputs, taps;
  int *first, *count;
  int32_t* weight;
  int low, high;  // the inputs that are used, [low, high); all lie within the inputs

  // Mirrored: output i is that of outputs - 1 - i.
  static Weights of(const Stretch& stretch, Filter filter, bool mirrored, Scratch::Frame& frame);
  // For inputs without the first `inputs` of them, which are not used.
  void skip(int inputs) {
    for (int i = 0; i < outputs; ++i) first[i] -= inputs;
    low -= inputs, high -= inputs;
  }
};

}  // namespace fastfeed
