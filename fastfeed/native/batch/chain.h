// Runs the layers of a program on one image.
#pragma once

#include <vector>

#include "image/image.h"
#include "batch/program.h"

namespace fastfeed {

// A table still to be applied to the image: neighboring tables are merged, and the last one into the conversion.
struct Tables {
  int count = 0;  // 0: none; 1: for all channels; 3: one per channel
  uint8_t of[3][256];

  void then(const uint8_t (*next)[256], int number);
};

// Runs the layers on `image`, whose memory is the caller's or `scratch`'s; a frame of the scratch must be open. Where
// `left` is given, a last table may be left in it.
Status run_layers(const std::vector<Layer>& layers, const LayerValues* values, size_t row, const NoiseTables& noise,
                  Image& image, Scratch& scratch, Tables* left);

}  // namespace fastfeed
