#include "ops/window.h"

#include <algorithm>
#include <cmath>
#include <cstdlib>
#include <cstring>
#include <stdexcept>

#include "ops/mirror.h"

namespace fastfeed {
namespace {

constexpr double kFar = 1 << 30;  // pixels of a result that its border may be wide
constexpr double kNear = 1e-6;  // of a pixel: sums of fractions

// The index in [0, length) whose pixel is shown at an index outside of it.
int64_t source_index(int64_t at, int64_t length, Border::Mode mode) {
  if (mode == Border::edge) return std::min(std::max(at, int64_t(0)), length - 1);
  const int64_t turn = mode == Border::symmetric, period = std::max(2 * (length - 1 + turn), int64_t(1));
  const int64_t place = (at % period + period) % period;
  return std::min(std::min(place, period - turn - place), length - 1);
}

// The source indices that are seen at [from, to], both included: the lowest, and one past the highest.
void visible(int64_t from, int64_t to, Border::Mode mode, Placement::Span& span) {
  const int64_t last = span.length - 1;
  const int64_t a = source_index(from, span.length, mode), b = source_index(to, span.length, mode);
  span.low = std::min(a, b);
  span.high = std::max(a, b) + 1;
  if (mode == Border::edge || last <= 0 || (from >= 0 && to <= last)) return;
  // a reflection turns around at the first and the last index, in turn; a symmetric one is there twice
  const auto turns = [&](int64_t parity) {
    const int64_t period = 2 * (last + (mode == Border::symmetric)), start = from - parity * last;
    const int64_t next = start + ((-start) % period + period) % period;
    return next + parity * last <= to;
  };
  if (turns(0)) span.low = 0;
  if (turns(1)) span.high = span.length;
}

// One axis of Placement: `box` is replaced by that of the part.
void place(double& start, double& extent, double limit, double available, Border::Mode mode, int size,
           Placement::Span& span) {
  const double end = start + extent, last = limit + available;
  if (mode == Border::none || !(start < limit - kNear || end > last + kNear)) {
    span = {0, size, 0, size};
    return;
  }
  const double unit = extent / size;  // pixels of the image per pixel of the result
  const bool near = unit > 0 && std::fabs(limit - start) < kFar * unit && std::fabs(last - start) < kFar * unit;
  if (!near || !(available > 0)) throw std::invalid_argument("a window lies too far outside of its image");
  // to the nearest pixels of the result; of two, to the even one
  span.first = std::llrint((limit - start) / unit);
  span.length = std::max(int64_t(std::llrint((last - start) / unit) - span.first), int64_t(1));
  span.low = std::min(std::max(-span.first, int64_t(0)), span.length);
  span.high = std::min(std::max(size - span.first, span.low), span.length);
  if (mode != Border::constant) visible(-span.first, size - 1 - span.first, mode, span);
  const double part = available / double(span.length);
  start = limit + double(span.low) * part;
  extent = double(span.high - span.low) * part;
}

template <int kChannels>
void put_pixel(uint8_t* to, const uint8_t* from) {
  for (int c = 0; c < kChannels; ++c) to[c] = from[c];
}

template <int kChannels>
void fill_pixels(uint8_t* at, int count, const uint8_t* color) {
  if (count <= 0) return;
  const size_t bytes = size_t(count) * kChannels, few = std::min(bytes, size_t(8 * kChannels));
  for (size_t i = 0; i < few; i += kChannels) put_pixel<kChannels>(at + i, color);
  for (size_t done = few; done < bytes; done *= 2) std::memcpy(at + done, at, std::min(done, bytes - done));
}

template <class Word>
void repeat_ends(uint8_t* at, size_t bytes, ptrdiff_t row, int rows) {
  Word first, last;
  std::memcpy(&first, at, sizeof(Word));
  std::memcpy(&last, at + bytes - sizeof(Word), sizeof(Word));
  for (int y = 1; y < rows; ++y) {
    at += row;
    std::memcpy(at, &first, sizeof(Word));
    std::memcpy(at + bytes - sizeof(Word), &last, sizeof(Word));
  }
}

// Some bytes of a row into the rows below it. Borders of small images are narrow, and there are many: without a call.
void repeat(uint8_t* at, size_t bytes, ptrdiff_t row, int rows) {
  if (bytes > 16) {
    for (int y = 1; y < rows; ++y) std::memcpy(at + y * row, at, bytes);
  } else if (bytes >= 8) {
    repeat_ends<uint64_t>(at, bytes, row, rows);
  } else if (bytes >= 4) {
    repeat_ends<uint32_t>(at, bytes, row, rows);
  } else {
    for (size_t i = 0; i < bytes; ++i) repeat_ends<uint8_t>(at + i, 1, row, rows);
  }
}

// The pixel at which the one `distance` beyond an end of `length` pixels is found: that many back from that end, or, if
// negative, that many further on, where it has been drawn already. turn: 1 if the end itself comes first.
int reflected(int distance, int length, int turn) {
  return distance - turn < length ? distance - turn : std::max(2 * (length - 1 + turn), 1) - distance;
}

// What is left and right of the part.
template <int kChannels>
void draw_sides(const Placement& p, const Border& border, const Slot& slot) {
  const int left = p.left, after = slot.width - p.left - p.width;
  uint8_t* first = slot.at + p.top * slot.row + ptrdiff_t(left) * kChannels;
  uint8_t* last = first + ptrdiff_t(p.width - 1) * kChannels;
  if (border.mode == Border::constant) {
    uint8_t *const before = first - left * kChannels, *const beyond = last + kChannels;
    fill_pixels<kChannels>(before, left, border.fill);
    fill_pixels<kChannels>(beyond, after, border.fill);
    if (left > 0) repeat(before, size_t(left) * kChannels, slot.row, p.height);
    if (after > 0) repeat(beyond, size_t(after) * kChannels, slot.row, p.height);
    return;
  }
  const bool edge = border.mode == Border::edge;
  const int turn = border.mode == Border::symmetric;
  constexpr int kVbmi = 8;  // pixels that are worth a call
  if (!edge && std::max(left, after) >= kVbmi && std::max(left, after) < p.width) {
    copy_rows(first + (1 - turn) * kChannels, slot.row, first - left * kChannels, slot.row, p.height, left, kChannels, true);
    copy_rows(last - (after - turn) * kChannels, slot.row, last + kChannels, slot.row, p.height, after, kChannels, true);
    return;
  }
  for (int y = 0; y < p.height; ++y, first += slot.row, last += slot.row) {
    if (edge) {
      fill_pixels<kChannels>(first - left * kChannels, left, first);
      fill_pixels<kChannels>(last + kChannels, after, last);
      continue;
    }
    for (int x = 1; x <= left; ++x)
      put_pixel<kChannels>(first - x * kChannels, first + reflected(x, p.width, turn) * kChannels);
    for (int x = 1; x <= after; ++x)
      put_pixel<kChannels>(last + x * kChannels, last - reflected(x, p.width, turn) * kChannels);
  }
}

template <int kChannels>
void draw_at(const int* columns, int width, const uint8_t* from, uint8_t* to) {
  for (int x = 0; x < width; ++x, to += kChannels) put_pixel<kChannels>(to, from + columns[x] * kChannels);
}

}  // namespace

Placement place(const Cut& cut, const Border& border, int height, int width) {
  Placement p;
  std::copy(cut.box, cut.box + 4, p.box);
  const int size[2] = {height, width};
  int part[2], corner[2];
  p.whole = p.inside = true;
  for (int axis = 0; axis < 2; ++axis) {
    Placement::Span& span = p.span[axis];
    place(p.box[axis], p.box[axis + 2], cut.limit[axis], cut.limit[axis + 2], border.mode, size[axis], span);
    const int64_t before = span.first + span.low, after = size[axis] - span.first - span.high;
    part[axis] = int(span.high - span.low);
    corner[axis] = int(cut.flip[axis] ? after : before);
    p.whole &= before == 0 && after == 0;
    p.inside &= before >= 0 && after >= 0;
  }
  p.height = part[0], p.width = part[1];
  p.top = corner[0], p.left = corner[1];
  return p;
}

void fill(const Slot& slot, const uint8_t* color, int channels) {
  if (slot.height <= 0 || slot.width <= 0) return;
  if (channels == 3) fill_pixels<3>(slot.at, slot.width, color);
  else fill_pixels<1>(slot.at, slot.width, color);
  repeat(slot.at, size_t(slot.width) * size_t(channels), slot.row, slot.height);
}

void draw_border(const Placement& p, const Border& border, const Slot& slot, int channels) {
  if (p.width < slot.width) channels == 3 ? draw_sides<3>(p, border, slot) : draw_sides<1>(p, border, slot);
  const int before = p.top, after = slot.height - p.top - p.height, last = p.top + p.height - 1;
  const size_t bytes = size_t(slot.width) * size_t(channels);
  const auto row = [&](int y) { return slot.at + y * slot.row; };
  if (border.mode == Border::constant) {
    fill({slot.at, slot.row, before, slot.width}, border.fill, channels);
    fill({row(last + 1), slot.row, after, slot.width}, border.fill, channels);
    return;
  }
  const bool edge = border.mode == Border::edge;
  const int turn = border.mode == Border::symmetric;
  for (int y = 1; y <= before; ++y)
    std::memcpy(row(p.top - y), row(edge ? p.top : p.top + reflected(y, p.height, turn)), bytes);
  for (int y = 1; y <= after; ++y)
    std::memcpy(row(last + y), row(edge ? last : last - reflected(y, p.height, turn)), bytes);
}

void draw_reflection(const Placement& p, const Cut& cut, const Border& border, const Slot& part, const Slot& slot,
                     int channels, Scratch& scratch) {
  Scratch::Frame frame(scratch);
  const auto index = [&](int axis, int at, int size, int length) {
    const Placement::Span& span = p.span[axis];
    if (cut.flip[axis]) at = size - 1 - at;
    const int from = int(source_index(at - span.first, span.length, border.mode) - span.low);
    return cut.flip[axis] ? length - 1 - from : from;
  };
  int* const columns = frame.take<int>(size_t(slot.width));
  for (int x = 0; x < slot.width; ++x) columns[x] = index(1, x, slot.width, part.width);
  for (int y = 0; y < slot.height; ++y) {
    const uint8_t* const from = part.at + index(0, y, slot.height, part.height) * part.row;
    uint8_t* const to = slot.at + y * slot.row;
    channels == 3 ? draw_at<3>(columns, slot.width, from, to) : draw_at<1>(columns, slot.width, from, to);
  }
}

void cut(const Image& in, const Cut& cut, const Border& border, Filter filter, const Slot& slot, Scratch& scratch) {
  cut_with_border(cut, border, slot, in.channels, scratch,
                  [&](const double* box, const bool* flip, const Slot& part) {
                    resize(in, box, flip, filter, part, scratch);
                    return Status::ok;
                  });
}

void cut_in_place(Image& image, const Cut& cut, const Border& border, Filter filter, int height, int width,
                  Scratch& scratch, uint8_t* out) {
  if (height == image.height && width == image.width) {
    const Placement p = place(cut, border, height, width);
    if (p.whole && p.box[0] == 0 && p.box[1] == 0 && p.box[2] == height && p.box[3] == width)
      return mirror(image, cut.flip);
  }
  const Image made = {out, height, width, image.channels};
  fastfeed::cut(image, cut, border, filter, {out, ptrdiff_t(made.row()), height, width}, scratch);
  image = made;
}

}  // namespace fastfeed
