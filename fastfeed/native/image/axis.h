// Which inputs an output of a resized axis is made of, and with which weights.
#pragma once

#include <cmath>
#include <cstdint>
#include <vector>

namespace fastfeed {

enum class Filter : int { bilinear = 0, bicubic = 1, lanczos = 2, box = 3, nearest = 4, linear = 5 };
constexpr int kFilters = 6;

// Where the pixels are that [start, start + length) becomes `outputs` of, as Pillow's nearest filter has it after a crop
// to that window: it adds up steps, which decides between pixels that are equally near. show(output, pixel, place).
template <class Show>
void each_nearest(double start, double length, int outputs, Show show) {
  const double whole = std::floor(start), step = length / outputs;
  double at = start - whole + 0.5 * step;
  for (int i = 0; i < outputs; ++i, at += step) show(i, whole + std::floor(at), whole + at);
}

// Weights of one axis. Output i is the sum of weight[i * taps + k] * input[first[i] + k], k < count[i].
struct Axis {
  std::vector<int> first, count;
  std::vector<float> weight;
  // Room for weights per output, a multiple of 4, zero where they are not used; the largest count.
  int taps = 0, most = 0;
  bool copies = false;  // each output is an input, and the next one the next

  // Map [start, start + length) of `inputs` pixels to `outputs`. The filter's support grows with the reduction (linear's
  // does not) and may reach outside the window, but not outside the inputs, as in Pillow's resize(box=...).
  void set(Filter filter, double start, double length, int inputs, int outputs);
  int low() const { return first.front(); }
  int high() const;  // one past the last input used
};

// Cache of recently used axes: consecutive photographs of one size need the same ones, and computing their sines takes
// 5 % of the time of a small photograph.
class Axes {
 public:
  // Valid until kKept - 1 others have been requested.
  const Axis& get(Filter filter, double start, double length, int inputs, int outputs);

 private:
  static constexpr int kKept = 16;
  struct Kept {
    Filter filter = Filter::box;
    double start = 0, length = 0;
    int inputs = 0, outputs = 0;
    uint64_t used = 0;
    Axis axis;
  };
  Kept kept_[kKept];
  uint64_t now_ = 0;
};

}  // namespace fastfeed
