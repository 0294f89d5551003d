// From a window of the picture that is seen to stored pixels, and back to where results are written.
#pragma once

#include "image/header.h"
#include "decode/worker.h"

namespace fastfeed {

struct Box {
  double top, left, height, width;
};

// A window in stored pixels.
Box stored(const Window& window, const Header& header);
// Whether stored rows and columns are written in reversed order.
struct Reversed {
  bool rows, columns;
};
Reversed reversed(const Header& header, const Window& window);
// Where stored pixel (y, x) of the result is written, after rotation and flips.
Target target(const Slot& slot, int channels, const Header& header, const Window& window);

// Pixels that so many are shrunk to.
inline int shrunk(int length, int denominator) { return (length + denominator - 1) / denominator; }

}  // namespace fastfeed
