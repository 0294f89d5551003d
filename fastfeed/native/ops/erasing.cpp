#include "erasing.h"

#include <algorithm>
#include <cstring>

namespace fastfeed {
namespace {

// Pixels of one color, begun at any pixel: three times the longest piece that the compiler copies without a call.
struct Color {
  Color(const uint8_t* fill, int channels)
      : is_gray(channels == 1 || (fill[0] == fill[1] && fill[0] == fill[2])), gray(fill[0]) {
    for (size_t i = 0; i < sizeof line; ++i) line[i] = fill[i % size_t(channels)];
  }

  void paint(uint8_t* at, size_t bytes) const {
    if (is_gray) {
      std::memset(at, gray, bytes);
      return;
    }
    for (; bytes >= sizeof line; at += sizeof line, bytes -= sizeof line) std::memcpy(at, line, sizeof line);
    std::memcpy(at, line, bytes);
  }

  uint8_t line[192];
  bool is_gray;
  uint8_t gray;
};

}  // namespace

void erase(Image& image, int top, int left, int height, int width, const uint8_t* fill) {
  const Color color(fill, image.channels);
  uint8_t* at = image.at + size_t(top) * image.row() + size_t(left) * size_t(image.channels);
  for (int y = 0; y < height; ++y, at += image.row()) color.paint(at, size_t(width) * size_t(image.channels));
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
  constexpr int kNarrow = 32;  // pixels; of such squares there are many, and a mask for a row is quicker
  const size_t channels = size_t(image.channels), row = image.row();
  const auto first = [unit](int begin) { return begin % unit - (begin % unit > 0 ? unit : 0); };  // at or before 0
  const Color color(fill, image.channels);
  Scratch::Frame frame(scratch);
  uint8_t *keep = nullptr, *paint = nullptr;
  if (unit < kNarrow) {
    keep = frame.bytes(row), paint = frame.bytes(row);
    std::memset(keep, 255, row), std::memset(paint, 0, row);
    for (int x = first(left); x < image.width; x += unit)
      for (int k = std::max(x, 0); k < std::min(x + side, image.width); ++k)
        for (size_t c = 0; c < channels; ++c) keep[size_t(k) * channels + c] = 0, paint[size_t(k) * channels + c] = fill[c];
  }
  for (int y = first(top); y < image.height; y += unit)
    for (int line = std::max(y, 0); line < std::min(y + side, image.height); ++line) {
      uint8_t* at = image.at + size_t(line) * row;
      if (keep) {
        for (size_t i = 0; i < row; ++i) at[i] = uint8_t((at[i] & keep[i]) | paint[i]);
        continue;
      }
      for (int x = first(left); x < image.width; x += unit) {
        const int from = std::max(x, 0), to = std::min(x + side, image.width);
        if (from < to) color.paint(at + size_t(from) * channels, size_t(to - from) * channels);
      }
    }
}

}  // namespace fastfeed
