// A JPEG's luma and chroma scaled one by one, from its own planes to those of another JPEG: no chroma is enlarged only to be
// shrunk again, no color converted only to be converted back.
#include <algorithm>
#include <cmath>
#include <cstring>

#include "geometry.h"
#include "system.h"

namespace fastfeed {
namespace {

constexpr int kBlock = 8;  // pixels across a block

// A stretch of one axis, in pixels of the stored image.
struct Stretch {
  double start, length;
};

// What `samples` of a plane show, of which each covers `step` of the `pixels` that show `window`: the last one may cover a
// pixel more than there are. `reversed`: it is the first one that is stored.
Stretch shown_by(int samples, int step, int pixels, Stretch window, bool reversed) {
  const double length = window.length * samples * step / pixels;
  return {reversed ? window.start + window.length - length : window.start, length};
}

}  // namespace

YccPlanes Worker::planes(int height, int width, bool subsampled) {
  YccPlanes planes;
  size_t all = 0;
  for (int c = 0; c < 3; ++c) {
    const int step = c && subsampled ? 2 : 1, high = shrunk(height, step), wide = shrunk(width, step);
    planes.part[c] = {nullptr, ptrdiff_t(shrunk(wide, kBlock)) * kBlock, high, wide, step};
    all += size_t(planes.part[c].row) * size_t(high);
  }
  if (pixels_.size() < all) pixels_ = std::vector<uint8_t>(all);
  uint8_t* at = pixels_.data();
  for (YccPlanes::Plane& plane : planes.part) {
    plane.at = at;
    at += plane.row * plane.height;
  }
  return planes;
}

Status Worker::scale_planes(const uint8_t* data, size_t size, const Header& header, const Window& window, Filter filter,
                            const Limits& limits, bool plain, const YccPlanes& planes) {
  const int components = header.components;
  int most_across = 1, most_down = 1;
  for (int c = 0; c < components; ++c) {
    const int across = header.sampling[c] >> 4, down = header.sampling[c] & 15;
    if (!across || !down) return Status::unsupported_format;
    most_across = std::max(most_across, across), most_down = std::max(most_down, down);
  }
  const bool swap = header.orientation >= 5;
  const Box box = stored(window, header);
  JpegReader::Denominators denominators{1, 1, 1};
  const Axis *vertical[3], *horizontal[3];
  double left = header.width, right = 0;  // columns that are read, pixels of the stored image
  for (int c = 0; c < components; ++c) {
    const YccPlanes::Plane& plane = planes.part[c];
    const Target to = target({plane.at, plane.row, plane.height, plane.width}, 1, header, window);
    const int across = header.sampling[c] >> 4, down = header.sampling[c] & 15;
    const int rows = swap ? plane.width : plane.height, columns = swap ? plane.height : plane.width;
    const int all_rows = swap ? planes.part[0].width : planes.part[0].height;
    const int all_columns = swap ? planes.part[0].height : planes.part[0].width;
    const Stretch v = shown_by(rows, plane.step, all_rows, {box.top, box.height}, to.row < 0);
    const Stretch h = shown_by(columns, plane.step, all_columns, {box.left, box.width}, to.column < 0);
    const double y = double(down) / most_down, x = double(across) / most_across;  // samples per pixel
    const int d = denominators[size_t(c)] = denominator(v.length * y, h.length * x, rows, columns, limits.enlarge);
    // as libjpeg counts them
    const auto samples = [&](int length, int share, int most) {
      return int((int64_t(length) * share + int64_t(most) * d - 1) / (int64_t(most) * d));
    };
    vertical[c] = &axes_.get(filter, v.start * y / d, v.length * y / d, samples(header.height, down, most_down), rows);
    horizontal[c] = &axes_.get(filter, h.start * x / d, h.length * x / d, samples(header.width, across, most_across), columns);
    left = std::min(left, horizontal[c]->low() * d / x);
    right = std::max(right, horizontal[c]->high() * d / x);
    resamplers_[c].begin(vertical[c], horizontal[c], 0, to, 1);
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
