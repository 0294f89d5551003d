// Combines finished samples of a batch with their neighbors: MixUp, CutMix, Mosaic. ops/mix.py has the same table.
#pragma once

#include <cstddef>
#include <cstdint>

#include "batch/executor.h"

namespace fastfeed {

enum class Mix : int64_t { as_is = 0, blend = 1, paste = 2, mosaic = 3 };

// How n samples are mixed; members are rows of `samples`, the sample itself first.
struct MixPlan {
  const uint8_t* samples;  // rows of window bytes
  const int64_t* members;  // (n, group)
  const int64_t* how;      // (n,)
  const double* shares;    // (n, group)
  const int64_t* box;      // (n, 4): where the second member is pasted; row and column of a mosaic's center
  size_t group;
};

// Makes one sample of the batch from those of its group, and converts it into `out`.
void mix_sample(const Program& program, const MixPlan& plan, size_t row, uint8_t* out, Scratch& scratch);

}  // namespace fastfeed
