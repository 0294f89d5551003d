// Huffman decoding of a baseline JPEG's only scan, in place of libjpeg's, where half of the decoding time is spent.
//
// Data outside the window is skipped bit by bit, several codes per lookup. Anything unusual in the data is left to
// libjpeg: `give_up` is called, and the image is restarted without this decoder.
#pragma once

#include <cstddef>
#include <cstdint>

#include "bits.h"
#include "codes.h"

namespace fastfeed {

class Entropy {
 public:
  // Call when `info` has started and knows its window: columns [left, left + width) of the shrunk image. False
  // and nothing changed: the tables are not valid. Takes info->client_data.
  bool attach(j_decompress_ptr info, JDIMENSION left, JDIMENSION width, GiveUp give_up);

  boolean decode(j_decompress_ptr info, JBLOCKROW* blocks);

 private:
  struct Block {
    const Codes *dc, *ac;
    int component;
    bool flat;  // only its mean is shown
  };

  Codes dc_[NUM_HUFF_TBLS], ac_[NUM_HUFF_TBLS];
  Block blocks_[D_MAX_BLOCKS_IN_MCU];
  GiveUp give_up_ = nullptr;
  int count_ = 0;
  unsigned columns_ = 0, column_ = 0, first_ = 0, last_ = 0;  // of MCUs: in a row, the next, those that are shown
  int means_[MAX_COMPS_IN_SCAN];
  Cursor cursor_;
};

}  // namespace fastfeed
