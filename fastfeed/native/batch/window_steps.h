// Arithmetic of windows for a whole batch, where NumPy's calls cost more than the work; ops/ defines it in Python.
#pragma once

#include <cstddef>
#include <cstdint>

namespace fastfeed {

// What ops/program/window.py calls a step: n windows so far (boxes (n, 4), flips (n, 2), sizes as they are now (n, 2)),
// and how the next op moves them.
void fold(double* boxes, bool* flips, int64_t* now, const double* box, const bool* flip, const int64_t* size, size_t n);

// RandomResizedCrop's boxes (n, 4), from its random numbers (n, 22), the ratios of width to height to try (n, 10), and
// the height and width of each image (n, 2).
struct CropRange {
  double least_area, most_area;  // shares of the image
  double least_ratio, most_ratio;
};
void resized_crops(const double* u, const double* ratios, const int64_t* sizes, const CropRange& range, double* boxes,
                   size_t n);

}  // namespace fastfeed
