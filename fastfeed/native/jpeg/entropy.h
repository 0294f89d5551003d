// Huffman decoding of a baseline JPEG's only scan, in place of libjpeg's, where half of the decoding time is spent.
//
// Data outside the window is skipped bit by bit, several codes per lookup; restart intervals above it are leapt over
// unread. Anything unusual in the data is left to libjpeg: `give_up` is called, and the image is restarted without this
// decoder.
#pragma once

#include <cstddef>
#include <cstdint>

#include "jpeg/bits.h"
#include "jpeg/codes.h"

namespace fastfeed {

class Entropy {
 public:
  // Call when `info` has started and knows its window: rows from `top` on, columns [left, left + width) of the shrunk
  // image. False and nothing changed: the tables are not valid. Takes info->client_data.
  bool attach(j_decompress_ptr info, JDIMENSION top, JDIMENSION left, JDIMENSION width, GiveUp give_up);

  struct Block {
    const Codes *dc, *ac;
    int component;
    bool flat;  // only its mean is shown
  };
  // What decodes one MCU after the other reads and writes.
  struct Scan {
    Block blocks[D_MAX_BLOCKS_IN_MCU];
    GiveUp give_up = nullptr;
    int count = 0;
    unsigned columns = 0, column = 0, first = 0, last = 0;  // of MCUs: in a row, the next, those that are shown
    size_t above = 0;     // MCUs from the next one on that libjpeg skips, as far as it is certain
    size_t leapt = 0;     // of these, how many have been leapt over before libjpeg asked for them
    int means[MAX_COMPS_IN_SCAN];
    Cursor cursor;

    bool leap(j_decompress_ptr info, const JBLOCKROW* out);
  };

 private:
  Codes dc_[NUM_HUFF_TBLS], ac_[NUM_HUFF_TBLS];
  Scan scan_;
};

}  // namespace fastfeed
