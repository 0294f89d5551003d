// Antialiased separable resampling of rows as they arrive, directly into the caller's array.
#pragma once

#include <cstddef>
#include <cstdint>
#include <vector>

#include "image/axis.h"
#include "image/image.h"

namespace fastfeed {

class Resampler {
 public:
  // Rows will be those from vertical.low() on; a row's first pixel is input `left` of the horizontal axis. Channels, 1 or
  // 3, lie side by side.
  void begin(const Axis* vertical, const Axis* horizontal, int left, Target target, int channels = 3);
  // The next `count` rows, `stride` bytes apart.
  void push(const uint8_t* rows, size_t stride, int count);

 private:
  void finish(int y, const float* sums);
  void copy(int y, const uint8_t* pixels);

  const Axis *vertical_ = nullptr, *horizontal_ = nullptr;
  Target target_{};
  int channels_ = 3, low_ = 0, width_ = 0, offset_ = 0, input_ = 0, open_ = 0, ring_ = 0;
  size_t stride_ = 0;  // of sums_, a row of floats per open output; whatever is in it is finite
  std::vector<float> sums_;
};

}  // namespace fastfeed
