// What callers pass must never reach memory that is not theirs: constants are checked when a program is made, the
// numbers of a sample where an op runs.
#pragma once

#include <algorithm>
#include <cmath>
#include <stdexcept>

#include "batch/program.h"

namespace fastfeed {

constexpr int kMostSide = 1 << 24;  // pixels; floats count no further

// Throws std::invalid_argument for sizes, constants, modes and tables that the ops cannot run with.
void check(const Program& program);

// The number itself where an op can take it, else the nearest that it can. Throws std::invalid_argument for NaN and
// infinite numbers, which no op draws.
inline double within(double number, double low, double high) {
  if (!std::isfinite(number)) throw std::invalid_argument("a number of an op must be finite");
  return std::min(std::max(number, low), high);
}
inline int whole_within(double number, int low, int high) { return int(within(number, low, high)); }

}  // namespace fastfeed
