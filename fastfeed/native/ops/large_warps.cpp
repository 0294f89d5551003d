#include "ops/large_warps.h"

#include <algorithm>
#include <cmath>

namespace fastfeed {
namespace {

void take_nearest(const Image& in, double x, double y, uint8_t* out) {
  const uint8_t* at = in.at + size_t(y) * in.row() + size_t(x) * size_t(in.channels);
  std::copy(at, at + in.channels, out);
}

void take_bilinear(const Image& in, double x, double y, uint8_t* out) {
  const double left = std::floor(x - 0.5), top = std::floor(y - 0.5), across = x - 0.5 - left, down = y - 0.5 - top;
  const size_t channels = size_t(in.channels);
  const size_t first = size_t(std::max(left, 0.0)) * channels;
  const size_t second = size_t(std::min(left + 1, double(in.width - 1))) * channels;
  const uint8_t* above = in.at + size_t(std::max(top, 0.0)) * in.row();
  const uint8_t* below = in.at + size_t(std::min(top + 1, double(in.height - 1))) * in.row();
  for (size_t c = 0; c < channels; ++c) {
    const double high = above[first + c] + double(above[second + c] - above[first + c]) * across;
    const double low = below[first + c] + double(below[second + c] - below[first + c]) * across;
    out[c] = uint8_t(high + (low - high) * down);
  }
}

}  // namespace

void warp_large(const Image& in, const double* matrix, Interpolation filter, const uint8_t* fill, Image& out) {
  double m[8];
  for (int k = 0; k < 8; ++k) m[k] = matrix[k] / (matrix[8] == 0 ? 1e-12 : matrix[8]);
  uint8_t* at = out.at;
  for (int row = 0; row < out.height; ++row) {
    for (int column = 0; column < out.width; ++column, at += out.channels) {
      const double u = column + 0.5, v = row + 0.5, w = m[6] * u + m[7] * v + 1;
      const double x = (m[0] * u + m[1] * v + m[2]) / w, y = (m[3] * u + m[4] * v + m[5]) / w;
      if (!(x >= 0 && x < in.width && y >= 0 && y < in.height)) {
        std::copy(fill, fill + out.channels, at);
      } else if (filter == Interpolation::nearest) {
        take_nearest(in, x, y, at);
      } else {
        take_bilinear(in, x, y, at);
      }
    }
  }
}

}  // namespace fastfeed
