// Huffman decoding of a baseline JPEG's only scan, in place of libjpeg's: half of the time of a decode goes there.
//
// What a window does not show is read past by the bits, several codes per look-up. Anything out of the ordinary in the
// data is left to libjpeg: `give_up` is called, and the image begun again without this.
#pragma once

#include <cstddef>
#include <cstdint>

#include "bits.h"
#include "codes.h"

namespace fastfeed {

class Entropy {
 public:
  // To be called when `info` has started and knows its window: columns [left, left + width) of the shrunk image. False
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
