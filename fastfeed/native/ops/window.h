// Geometry on pixels: cut, scale, flip, and what lies beyond the edge of the image.
#pragma once

#include "image/image.h"
#include "image/header.h"
#include "ops/pillow_resize.h"

namespace fastfeed {

struct Border {
  enum Mode : int { none = 0, constant = 1, edge = 2, reflect = 3, symmetric = 4 };
  Mode mode = none;
  uint8_t fill[3] = {0, 0, 0};  // only the first for an image of one channel
};

// What is cut from an image, in pixels of the displayed image, and the part of it that exists.
struct Cut {
  double box[4];      // top, left, height, width
  bool flip[2];       // top to bottom, left to right, after cutting
  double limit[4];    // top, left, height, width; beyond it is the border
};

// The part of a cut that exists, and where it lies in the result.
struct Placement {
  // One axis, before mirroring. What exists is `length` pixels of the result from `first` on, which may lie outside of
  // it; [low, high) of them is the part that is drawn.
  struct Span {
    int64_t first, length, low, high;
  };
  Span span[2];
  double box[4];      // the part, in pixels of the image
  int height, width;  // of the part in the result; 0: only the border is seen
  int top, left;      // of the part in the result, mirrored already
  bool whole;         // it fills the result
  bool inside;        // it lies within the result. If not, only its reflection, or its edge, is seen

  bool empty() const { return height == 0 || width == 0; }
  Slot part(const Slot& slot, int channels) const {
    return {slot.at + top * slot.row + ptrdiff_t(left) * channels, slot.row, height, width};
  }
};
Placement place(const Cut& cut, const Border& border, int height, int width);

// Draws the border around the part, which lies in the slot already where placement.part() says.
void draw_border(const Placement& placement, const Border& border, const Slot& slot, int channels);
// Draws all of the slot where the part does not lie inside of it: `part` is elsewhere.
void draw_reflection(const Placement& placement, const Cut& cut, const Border& border, const Slot& part,
                     const Slot& slot, int channels, Scratch& scratch);
void fill(const Slot& slot, const uint8_t* color, int channels);

// Draws a border around what `inside` makes: it is called with the box, the flips and the slot of the part that exists,
// at most once, and returns its status. Without a border, or where the cut stays within its limit, it is called with
// the whole of the slot. A bad image leaves zeros.
template <class Inside>
Status cut_with_border(const Cut& cut, const Border& border, const Slot& slot, int channels, Scratch& scratch,
                       const Inside& inside) {
  const Placement placement = place(cut, border, slot.height, slot.width);
  if (placement.whole) return inside(placement.box, cut.flip, slot);
  if (placement.empty()) {
    fill(slot, border.fill, channels);
    return Status::ok;
  }
  Scratch::Frame frame(scratch);
  Slot part;
  if (placement.inside) {
    part = placement.part(slot, channels);
  } else {
    const ptrdiff_t row = ptrdiff_t(placement.width) * channels;
    part = {frame.bytes(size_t(placement.height) * size_t(row)), row, placement.height, placement.width};
  }
  const Status status = inside(placement.box, cut.flip, part);
  if (status != Status::ok) {
    constexpr uint8_t kBlack[3] = {0, 0, 0};
    fill(slot, kBlack, channels);
  } else if (placement.inside) {
    draw_border(placement, border, slot, channels);
  } else {
    draw_reflection(placement, cut, border, part, slot, channels, scratch);
  }
  return status;
}

// The same for an image of pixels.
void cut(const Image& in, const Cut& cut, const Border& border, Filter filter, const Slot& slot, Scratch& scratch);

// The image becomes what is cut from it: in place where that is the image itself, perhaps mirrored, and otherwise in
// `out`, which has room for height x width pixels.
void cut_in_place(Image& image, const Cut& cut, const Border& border, Filter filter, int height, int width,
                  Scratch& scratch, uint8_t* out);

}  // namespace fastfeed
