// Geometry on pixels: cut, scale, flip, and what lies beyond the edge of the image.
#pragma once

#include <functional>

#include "../image.h"
#include "../kernel.h"
#include "../resample.h"

namespace fastfeed {

struct Border {
  enum Mode : int { none = 0, constant = 1, edge = 2, reflect = 3 };
  Mode mode = none;
  uint8_t fill[3] = {0, 0, 0};
};

// What is cut from an image, in pixels of the displayed image, and the part of it that exists.
struct Cut {
  double box[4];      // top, left, height, width
  bool flip[2];       // top to bottom, left to right, after cutting
  double limit[4];    // top, left, height, width; beyond it is the border
};

// Scale a box of `in` to `out`, mirrored as `flip` says: Pillow's resize(box=...), byte for byte, or a copy where box is
// of the output's size and on whole pixels. `row` of the slot may be larger than width * channels.
void resize(const Image& in, const double* box, const bool* flip, Filter filter, const Slot& slot, Scratch& scratch);

// Draws a border around what `inside` makes: it is called with the box, the flips and the slot of the part that exists,
// at most once, and returns its status. Without a border, or where the cut stays within its limit, it is called with
// the whole of the slot.
using Inside = std::function<Status(const double* box, const bool* flip, const Slot& slot)>;
Status cut_with_border(const Cut& cut, const Border& border, const Slot& slot, int channels, Scratch& scratch,
                       const Inside& inside);

}  // namespace fastfeed
