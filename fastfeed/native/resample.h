// Antialiased separable resampling of RGB rows as they arrive, directly into the caller's array.
#pragma once

#include <cstddef>
#include <cstdint>
#include <vector>

namespace fastfeed {

enum class Filter : int { bilinear = 0, bicubic = 1, lanczos = 2, box = 3 };

// Weights of one axis. Output i is the sum of weight[i * taps + k] * input[first[i] + k], k < count[i].
struct Axis {
  std::vector<int> first, count;
  std::vector<float> weight;
  int taps = 0, most = 0;  // room for weights per output, zero where they are not used; the largest count
  bool copies = false;  // each output is an input, and the next one the next

  // Map [start, start + length) of `inputs` pixels to `outputs`. The filter's support grows with the reduction and may
  // reach outside the window, but not outside the inputs, as in Pillow's resize(box=...).
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
  static constexpr int kKept = 8;
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

// Where output pixels go: pixel (y, x) is written to at + y * row + x * column (bytes). Strides may be negative, which
// is how orientation and flips cost nothing.
struct Target {
  uint8_t* at;
  ptrdiff_t row, column;
};

class Resampler {
 public:
  // Rows will be those from vertical.low() on; a row's first pixel is input `left` of the horizontal axis.
  void begin(const Axis* vertical, const Axis* horizontal, int left, Target target);
  // The next `count` rows, `stride` bytes apart.
  void push(const uint8_t* rows, size_t stride, int count);

 private:
  void finish(int y, const float* sums);
  void copy(int y, const uint8_t* pixels);

  const Axis *vertical_ = nullptr, *horizontal_ = nullptr;
  Target target_{};
  int low_ = 0, width_ = 0, offset_ = 0, input_ = 0, open_ = 0, ring_ = 0;
  size_t stride_ = 0;  // of sums_, a row of floats per open output; whatever is in it is finite
  std::vector<float> sums_;
};

}  // namespace fastfeed
