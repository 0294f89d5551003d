#include "ops/large_warps.h"

#include <algorithm>
#include <cmath>

namespace fastfeed {
namespace {

// As in warp_segments.h.
double within_reach(double at) { return at > -0x1p21 ? std::min(at, 0x1p21) : -0x1p21; }

void take_nearest(const WarpSource& in, double x, double y, uint8_t* out) {
  const uint8_t* at = in.pixel(int(std::floor(y)), int(std::floor(x)));
  std::copy(at, at + in.channels, out);
}

void take_bilinear(const WarpSource& in, double x, double y, uint8_t* out) {
  const double left = std::floor(x - 0.5), top = std::floor(y - 0.5), across = x - 0.5 - left, down = y - 0.5 - top;
  int columns[2] = {int(left), int(left) + 1}, rows[2] = {int(top), int(top) + 1};
  if (!in.has_border()) {
    for (int k = 0; k < 2; ++k) {
      columns[k] = std::clamp(columns[k], 0, in.width - 1);
      rows[k] = std::clamp(rows[k], 0, in.height - 1);
    }
  }
  const uint8_t *a = in.pixel(rows[0], columns[0]), *b = in.pixel(rows[0], columns[1]);
  const uint8_t *c = in.pixel(rows[1], columns[0]), *d = in.pixel(rows[1], columns[1]);
  for (int k = 0; k < in.channels; ++k) {
    const double high = a[k] + double(b[k] - a[k]) * across, low = c[k] + double(d[k] - c[k]) * across;
    out[k] = uint8_t(high + (low - high) * down);
  }
}

}  // namespace

void warp_large(const WarpSource& in, const double* matrix, Interpolation filter, Image& out) {
  double m[8];
  for (int k = 0; k < 8; ++k) m[k] = matrix[k] / (matrix[8] == 0 ? 1e-12 : matrix[8]);
  uint8_t* at = out.at;
  for (int row = 0; row < out.height; ++row) {
    for (int column = 0; column < out.width; ++column, at += out.channels) {
      const double u = column + 0.5, v = row + 0.5, w = m[6] * u + m[7] * v + 1;
      double x = (m[0] * u + m[1] * v + m[2]) / w, y = (m[3] * u + m[4] * v + m[5]) / w;
      if (in.has_border()) {
        x = within_reach(x);
        y = within_reach(y);
      }
      if (!in.has_border() && !(x >= 0 && x < in.width && y >= 0 && y < in.height)) {
        std::copy(in.border.fill, in.border.fill + out.channels, at);
      } else if (filter == Interpolation::nearest) {
        take_nearest(in, x, y, at);
      } else {
        take_bilinear(in, x, y, at);
      }
    }
  }
}

}  // namespace fastfeed
