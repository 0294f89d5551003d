#include "ops/pillow_resize.h"

#include <algorithm>
#include <cmath>
#include <stdexcept>

#include "ops/mirror.h"
#include "ops/pillow_passes.h"
#include "ops/pillow_weights.h"

namespace fastfeed {
namespace {

// What lies beyond the image is left out; of a box that lies outside of it altogether, the nearest edge is taken.
Stretch stretch(double start, double length, int inputs, int outputs) {
  if (!std::isfinite(start) || !(length > 0)) throw std::invalid_argument("a window needs a place and a size");
  const float first = float(std::min(std::max(start, 0.0), double(inputs)));
  const float last = float(std::min(start + length, double(inputs)));
  return {first, std::max(first, last), inputs, outputs};
}

// Which pixels [start, start + length) of `inputs` pixels become, as bytes from the first one.
void look_along(double start, double length, int inputs, int outputs, bool mirrored, size_t bytes, size_t* places) {
  const double first = std::clamp(start, 0.0, double(inputs)), last = std::min(start + length, double(inputs));
  each_nearest(first, std::max(first, last) - first, outputs, [&](int i, double pixel, double) {
    places[mirrored ? outputs - 1 - i : i] = size_t(std::clamp(pixel, 0.0, double(inputs - 1))) * bytes;
  });
}

template <int kChannels>
void pick(const Image& in, const size_t* rows, const size_t* columns, const Slot& slot) {
  for (int y = 0; y < slot.height; ++y) {
    const uint8_t* const from = in.at + rows[y];
    uint8_t* to = slot.at + y * slot.row;
    for (int x = 0; x < slot.width; ++x, to += kChannels)
      for (int c = 0; c < kChannels; ++c) to[c] = from[columns[x] + size_t(c)];
  }
}

// Takes the pixel under the center of each of the result's pixels.
void pick(const Image& in, const double* box, const bool* flip, const Slot& slot, Scratch& scratch) {
  Scratch::Frame frame(scratch);
  size_t* const rows = frame.take<size_t>(size_t(slot.height));
  size_t* const columns = frame.take<size_t>(size_t(slot.width));
  look_along(box[0], box[2], in.height, slot.height, flip[0], in.row(), rows);
  look_along(box[1], box[3], in.width, slot.width, flip[1], size_t(in.channels), columns);
  in.channels == 3 ? pick<3>(in, rows, columns, slot) : pick<1>(in, rows, columns, slot);
}

}  // namespace

void resize(const Image& in, const double* box, const bool* flip, Filter filter, const Slot& slot, Scratch& scratch) {
  const Stretch down = stretch(box[0], box[2], in.height, slot.height);
  const Stretch across = stretch(box[1], box[3], in.width, slot.width);
  const int channels = in.channels;
  const size_t width = size_t(slot.width) * size_t(channels);
  const uint8_t* const end = in.at + in.bytes();
  const Target target = {flip[0] ? slot.at + (slot.height - 1) * slot.row : slot.at, flip[0] ? -slot.row : slot.row, 0};
  if (down.copies() && across.copies()) {
    const uint8_t* from = in.at + size_t(down.start) * in.row() + size_t(across.start) * size_t(channels);
    return copy_rows(from, ptrdiff_t(in.row()), target.at, target.row, slot.height, slot.width, channels, flip[1]);
  }
  if (filter == Filter::nearest) return pick(in, box, flip, slot, scratch);
  Scratch::Frame frame(scratch);
  if (down.copies()) {
    const Weights weights = Weights::of(across, filter, flip[1], frame);
    const Pixels rows = {in.at + size_t(down.start) * in.row(), ptrdiff_t(in.row()), slot.height, end};
    return resize_across(weights, channels, rows, target.at, target.row, scratch);
  }
  Weights vertical = Weights::of(down, filter, false, frame);
  // Pillow's rule, and its two passes round to bytes one after the other. A pass that copies takes no part in that.
  const int64_t lower = int64_t(in.height) - slot.height, narrower = int64_t(in.width) - slot.width;
  if (!across.copies() && lower > 0 && lower > 2 * narrower) {
    Weights weights = Weights::of(across, filter, flip[1], frame);
    const int left = weights.low;
    const size_t used = size_t(weights.high - left) * size_t(channels), row = padded(used);
    uint8_t* const between = frame.bytes(size_t(slot.height) * row);
    const Pixels rows = {in.at + size_t(left) * size_t(channels), ptrdiff_t(in.row()), in.height, end};
    resize_down(vertical, rows, used, between, ptrdiff_t(row), scratch);
    weights.skip(left);
    const Pixels strip = {between, ptrdiff_t(row), slot.height, between + size_t(slot.height) * row};
    return resize_across(weights, channels, strip, target.at, target.row, scratch);
  }
  const int top = vertical.low, height = vertical.high - top;
  const uint8_t* const first = in.at + size_t(top) * in.row();
  vertical.skip(top);
  if (across.copies() && !flip[1]) {
    const Pixels rows = {first + size_t(across.start) * size_t(channels), ptrdiff_t(in.row()), height, end};
    return resize_down(vertical, rows, width, target.at, target.row, scratch);
  }
  const size_t row = padded(width);
  uint8_t* const between = frame.bytes(size_t(height) * row);
  if (across.copies()) {
    const uint8_t* from = first + size_t(across.start) * size_t(channels);
    copy_rows(from, ptrdiff_t(in.row()), between, ptrdiff_t(row), height, slot.width, channels, true);
  } else {
    const Weights weights = Weights::of(across, filter, flip[1], frame);
    resize_across(weights, channels, {first, ptrdiff_t(in.row()), height, end}, between, ptrdiff_t(row), scratch);
  }
  const Pixels strip = {between, ptrdiff_t(row), height, between + size_t(height) * row};
  resize_down(vertical, strip, width, target.at, target.row, scratch);
}

}  // namespace fastfeed
