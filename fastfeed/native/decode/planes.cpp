#include "decode/planes.h"

#include <algorithm>
#include <cmath>
#include <cstring>

#include "decode/geometry.h"
#include "system/system.h"

namespace fastfeed {
namespace {

constexpr int kBlock = 8;  // pixels across a block

// A stretch of one axis.
struct Stretch {
  double start, length;

  Stretch times(double factor) const { return {start * factor, length * factor}; }
};

// What `samples` of a plane show, of which each covers `step` of the `pixels` that show `window`: the last one may cover a
// pixel more than there are. `reversed`: it is the first one that is stored.
Stretch shown_by(int samples, int step, int pixels, Stretch window, bool reversed) {
  if (samples == 1) return window;
  const double length = window.length * samples * step / pixels;
  return {reversed ? window.start + window.length - length : window.start, length};
}

// How a component becomes a plane.
struct Component {
  int denominator;
  Stretch rows, columns;        // that the plane shows, in samples of the shrunk component
  int high, wide;               // rows and columns of the plane, as stored
  int rows_read, columns_read;  // of the shrunk component
  double pixels;                // of the image, across a sample of it
};

Component component_of(const Header& header, const Window& window, const YccPlanes& planes, int c,
                       const Limits& limits) {
  const int most_across = header.most_across(), most_down = header.most_down();
  const int across = header.sampling[c] >> 4, down = header.sampling[c] & 15;
  const YccPlanes::Plane &plane = planes.part[c], &whole = planes.part[0];
  const bool swap = header.orientation >= 5;
  const Reversed order = reversed(header, window);
  const Box box = stored(window, header);
  Component part{};
  part.high = swap ? plane.width : plane.height, part.wide = swap ? plane.height : plane.width;
  const Stretch v = shown_by(part.high, plane.step, swap ? whole.width : whole.height, {box.top, box.height}, order.rows)
                        .times(double(down) / most_down);
  const Stretch h = shown_by(part.wide, plane.step, swap ? whole.height : whole.width, {box.left, box.width}, order.columns)
                        .times(double(across) / most_across);
  const int d = part.denominator = denominator(v.length, h.length, part.high, part.wide, limits.enlarge);
  part.rows = v.times(1.0 / d), part.columns = h.times(1.0 / d);
  // as libjpeg counts them
  const auto samples = [d](int length, int share, int most) {
    return int((int64_t(length) * share + int64_t(most) * d - 1) / (int64_t(most) * d));
  };
  part.rows_read = samples(header.height, down, most_down);
  part.columns_read = samples(header.width, across, most_across);
  part.pixels = double(d) * most_across / across;
  return part;
}

// libjpeg enlarges chroma by whole factors only, and refuses other files.
bool is_whole(const Header& header) {
  for (int c = 0; c < header.components; ++c) {
    const int across = header.sampling[c] >> 4, down = header.sampling[c] & 15;
    if (!across || !down || header.most_across() % across || header.most_down() % down) return false;
  }
  return true;
}

}  // namespace

YccPlanes laid_out(int height, int width, bool subsampled) {
  YccPlanes planes;
  for (int c = 0; c < 3; ++c) {
    const int step = c && subsampled ? 2 : 1, high = shrunk(height, step), wide = shrunk(width, step);
    planes.part[c] = {nullptr, ptrdiff_t(shrunk(wide, kBlock)) * kBlock, high, wide, step};
  }
  return planes;
}

size_t held_in_planes(const Header& header, const Window& window, const YccPlanes& planes, const Limits& limits) {
  JpegReader::Denominators denominators{1, 1, 1};
  for (int c = 0; is_whole(header) && c < header.components; ++c)
    denominators[size_t(c)] = component_of(header, window, planes, c, limits).denominator;
  return jpeg_held_bytes(header, denominators);
}

Status Worker::scale_planes(const uint8_t* data, size_t size, const Header& header, const Window& window, Filter filter,
                            const Limits& limits, bool plain, YccPlanes& planes) {
  if (!is_whole(header)) return Status::unsupported_format;
  size_t all = 0;
  for (const YccPlanes::Plane& plane : planes.part) all += size_t(plane.row) * size_t(plane.height);
  if (pixels_.size() < all) pixels_ = std::vector<uint8_t>(all);
  uint8_t* next_plane = pixels_.data();
  for (YccPlanes::Plane& plane : planes.part) {
    plane.at = next_plane;
    next_plane += plane.row * plane.height;
  }
  const int components = header.components;
  JpegReader::Denominators denominators{1, 1, 1};
  const Axis *vertical[3], *horizontal[3];
  double left = header.width, right = 0;  // columns that are read, pixels of the stored image
  for (int c = 0; c < components; ++c) {
    const YccPlanes::Plane& plane = planes.part[c];
    const Component part = component_of(header, window, planes, c, limits);
    denominators[size_t(c)] = part.denominator;
    vertical[c] = &axes_.get(filter, part.rows.start, part.rows.length, part.rows_read, part.high);
    horizontal[c] = &axes_.get(filter, part.columns.start, part.columns.length, part.columns_read, part.wide);
    left = std::min(left, horizontal[c]->low() * part.pixels);
    right = std::max(right, horizontal[c]->high() * part.pixels);
    const Slot slot{plane.at, plane.row, plane.height, plane.width};
    resamplers_[c].begin(vertical[c], horizontal[c], 0, target(slot, 1, header, window), 1);
  }
  const int first = int(left / denominators[0]);
  jpegs_->stop = stopped;
  const Status status = jpegs_->start_planes(data, size, header, denominators, first,
                                             int(std::ceil(right / denominators[0])) - first, plain);
  if (status != Status::ok) return status;
  int next[3] = {};  // rows
  const auto is_missing = [&](int c) { return next[c] < vertical[c]->high(); };
  while (is_missing(0) || (components == 3 && (is_missing(1) || is_missing(2)))) {
    if (is_set(stopped)) {
      jpegs_->release();
      return Status::cancelled;
    }
    const std::array<RowReader::Rows, 3> rows = jpegs_->planes();
    if (!rows[0].count) {
      if (is_set(stopped)) continue;
      const Status ended = jpegs_->finish();
      return ended == Status::ok ? Status::corrupt : ended;
    }
    const int64_t begun = clock_ns();
    for (int c = 0; c < components; ++c) {
      const int from = std::max(next[c], vertical[c]->low()), to = std::min(next[c] + rows[c].count, vertical[c]->high());
      if (from < to) resamplers_[c].push(rows[c].at + size_t(from - next[c]) * rows[c].stride, rows[c].stride, to - from);
      next[c] += rows[c].count;
    }
    resize_ns += clock_ns() - begun;
  }
  for (int c = 0; c < 3; ++c) {
    const YccPlanes::Plane& plane = planes.part[c];
    if (c >= components) std::memset(plane.at, 128, size_t(plane.row) * size_t(plane.height));
    else
      for (uint8_t* at = plane.at; at != plane.at + plane.row * plane.height; at += plane.row)
        std::memset(at + plane.width, at[plane.width - 1], size_t(plane.row - plane.width));
  }
  return jpegs_->finish();
}

}  // namespace fastfeed
