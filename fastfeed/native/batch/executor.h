// Runs a program on the samples of a batch: decoding, ops and conversion, each sample from its bytes to its row.
#pragma once

#include <atomic>
#include <vector>

#include "batch/chain.h"
#include "decode/worker.h"
#include "batch/program.h"
#include "batch/samples.h"

namespace fastfeed {

// The parameters of n samples; with views there are as many rows per sample, one after the other.
struct Values {
  const double* boxes = nullptr;   // (rows, 4)
  const bool* flips = nullptr;     // (rows, 2)
  const double* limits = nullptr;  // (rows, 4), or null where no box reaches beyond its image
  const int64_t* filters = nullptr;  // (rows,), or null where all have the program's filter
  std::vector<LayerValues> layers;
};

// Nanoseconds of CLOCK_MONOTONIC that a thread spent on some samples.
struct Spent {
  int64_t begin = 0, decode = 0, augment = 0, convert = 0;
};

// Bytes of an image, through the tables still to be applied to it, into what the batch holds.
void convert_image(const Conversion& how, const Image& image, const Tables& tables, uint8_t* out);

// Fills the rows of one sample, at `out`, `row_bytes` each. A bad sample leaves rows of any content. May throw
// std::bad_alloc.
Status run_sample(const Program& program, const Values& values, size_t index, const Sample& sample, uint8_t* out,
                  size_t row_bytes, Worker& worker, Spent& spent);

}  // namespace fastfeed
