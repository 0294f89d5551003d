#include "ops/erasing.h"

#include <algorithm>
#include <cstring>

namespace fastfeed {
namespace {

constexpr size_t kLong = 192;  // bytes

void paint(uint8_t* at, size_t pixels, const uint8_t* fill, int channels) {
  if (channels == 1) {
    std::memset(at, fill[0], pixels);
    return;
  }
  for (size_t i = 0; i < pixels; ++i)
    for (size_t c = 0; c < 3; ++c) at[3 * i + c] = fill[c];
}

}  // namespace

void erase(Image& image, int top, int left, int height, int width, const uint8_t* fill) {
  if (height <= 0 || width <= 0) return;
  uint8_t* first = image.at + size_t(top) * image.row() + size_t(left) * size_t(image.channels);
  paint(first, size_t(width), fill, image.channels);
  for (int y = 1; y < height; ++y)
    std::memcpy(first + size_t(y) * image.row(), first, size_t(width) * size_t(image.channels));
}

void erase_with_noise(Image& image, int top, int left, int height, int width, int64_t offset, const uint8_t* table,
                      int64_t length) {
  const size_t begin = size_t(left) * size_t(image.channels), bytes = size_t(width) * size_t(image.channels);
  for (int y = top; y < top + height; ++y) {
    uint8_t* at = image.at + size_t(y) * image.row() + begin;
    size_t rest = bytes, from = (size_t(offset) + size_t(y) * image.row() + begin) % size_t(length);
    while (rest) {
      const size_t piece = std::min(rest, size_t(length) - from);
      std::memcpy(at, table + from, piece);
      at += piece, rest -= piece, from = 0;
    }
  }
}

void grid_mask(Image& image, int unit, int side, int top, int left, const uint8_t* fill, Scratch& scratch) {
  const size_t channels = size_t(image.channels), row = image.row();
  const auto first = [unit](int begin) { return begin % unit - (begin % unit > 0 ? unit : 0); };  // at or before 0
  Scratch::Frame frame(scratch);
  // a row's mask is quicker than its pieces one by one, unless they are long
  const bool one_by_one = size_t(side) * channels >= kLong;
  uint8_t *keep = frame.bytes(row), *color = frame.bytes(row);
  std::memset(keep, 255, row), std::memset(color, 0, row);
  for (int x = first(left); x < image.width; x += unit) {
    const int from = std::max(x, 0), to = std::min(x + side, image.width);
    if (from >= to) continue;
    std::memset(keep + size_t(from) * channels, 0, size_t(to - from) * channels);
    paint(color + size_t(from) * channels, size_t(to - from), fill, image.channels);
  }
  for (int y = first(top); y < image.height; y += unit)
    for (int line = std::max(y, 0); line < std::min(y + side, image.height); ++line) {
      uint8_t* at = image.at + size_t(line) * row;
      if (!one_by_one) {
        for (size_t i = 0; i < row; ++i) at[i] = uint8_t((at[i] & keep[i]) | color[i]);
        continue;
      }
      for (int x = first(left); x < image.width; x += unit) {
        const size_t from = size_t(std::max(x, 0)) * channels;
        const size_t to = size_t(std::clamp(x + side, 0, image.width)) * channels;
        if (from < to) std::memcpy(at + from, color + from, to - from);
      }
    }
}

}  // namespace fastfeed
