#include "batch/window_steps.h"

#include <algorithm>
#include <cmath>

namespace fastfeed {
namespace {

constexpr int kTrials = 10, kNumbers = 22;

// The largest box whose ratio is allowed.
void largest(double height, double width, const CropRange& range, double& box_height, double& box_width) {
  const double ratio = width / height;
  box_height = ratio < range.least_ratio ? std::max(std::nearbyint(width / range.least_ratio), 1.0) : height;
  box_width = ratio > range.most_ratio ? std::max(std::nearbyint(height * range.most_ratio), 1.0) : width;
  box_height = std::min(box_height, height), box_width = std::min(box_width, width);
}

}  // namespace

void fold(double* boxes, bool* flips, int64_t* now, const double* box, const bool* flip, const int64_t* size, size_t n) {
  for (size_t i = 0; i < n; ++i, boxes += 4, flips += 2, now += 2, box += 4, flip += 2, size += 2)
    for (int k = 0; k < 2; ++k) {
      const double side = double(now[k]), length = box[2 + k];
      const double corner = flips[k] ? side - box[k] - length : box[k];  // back to the unmirrored image
      const double unit = boxes[2 + k] / side;                          // source pixels per pixel of the image as it is
      boxes[k] += corner * unit;
      boxes[2 + k] = length * unit;
      flips[k] ^= flip[k];
      now[k] = size[k];
    }
}

void resized_crops(const double* u, const double* ratios, const int64_t* sizes, const CropRange& range, double* boxes,
                   size_t n) {
  const double areas = range.most_area - range.least_area;
  for (size_t i = 0; i < n; ++i, u += kNumbers, ratios += kTrials, sizes += 2, boxes += 4) {
    const double height = double(sizes[0]), width = double(sizes[1]);
    double box_height = 0, box_width = 0;
    bool fits = false;
    for (int k = 0; k < kTrials && !fits; ++k) {
      const double area = height * width * (range.least_area + u[k] * areas);
      box_width = std::nearbyint(std::sqrt(area * ratios[k]));
      box_height = std::nearbyint(std::sqrt(area / ratios[k]));
      fits = box_width >= 1 && box_height >= 1 && box_width <= width && box_height <= height;
    }
    if (!fits) largest(height, width, range, box_height, box_width);
    const double rest[2] = {height - box_height, width - box_width};
    for (int k = 0; k < 2; ++k)
      boxes[k] = fits ? std::floor(u[2 * kTrials + k] * (rest[k] + 1)) : std::floor(rest[k] / 2);
    boxes[2] = box_height, boxes[3] = box_width;
  }
}

}  // namespace fastfeed
