#include "ops/masks.h"

#include <algorithm>
#include <cmath>
#include <cstring>

#include "image/axis.h"
#include "ops/warps.h"

namespace fastfeed {
namespace {

constexpr int kOutside = -1;
constexpr double kNear = 1e-6;  // of a pixel: sums of fractions

// Which row or column of the input each one of the output shows.
void look_along(int count, int length, double scale, double shift, double first, double extent, int* source) {
  const double low = std::max(first, 0.0), high = std::min(first + extent, double(length));
  const bool mirrored = scale < 0;
  double seen = std::fabs(scale) * count;
  if (std::fabs(seen - std::nearbyint(seen)) < kNear) seen = std::nearbyint(seen);
  each_nearest(mirrored ? shift - seen : shift, seen, count, [&](int i, double pixel, double at) {
    source[mirrored ? count - 1 - i : i] =
        at >= low && at < high ? int(std::clamp(pixel, 0.0, double(length - 1))) : kOutside;
  });
}

}  // namespace

void move_mask(const Image& mask, const MaskMove& move, uint8_t ignore, Image& out, Scratch& scratch) {
  if (!move.is_straight()) return warp(WarpSource(mask, {Border::constant, {ignore}}), move.back, Interpolation::nearest, out);
  Scratch::Frame frame(scratch);
  int* const rows = frame.take<int>(size_t(out.height));
  int* const columns = frame.take<int>(size_t(out.width));
  const double *back = move.back, *limit = move.limit;
  look_along(out.height, mask.height, back[4], back[5], limit[0], limit[2], rows);
  look_along(out.width, mask.width, back[0], back[2], limit[1], limit[3], columns);
  for (int y = 0; y < out.height; ++y) {
    uint8_t* const to = out.at + size_t(y) * out.row();
    if (rows[y] == kOutside) {
      std::memset(to, ignore, out.row());
      continue;
    }
    const uint8_t* const from = mask.at + size_t(rows[y]) * mask.row();
    for (int x = 0; x < out.width; ++x) to[x] = columns[x] == kOutside ? ignore : from[columns[x]];
  }
}

}  // namespace fastfeed
