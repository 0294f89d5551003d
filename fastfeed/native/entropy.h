// Huffman decoding of a baseline JPEG's only scan, in place of libjpeg's: half of the time of a decode goes there.
//
// What a window does not show is read past by the bits, several codes per look-up. Anything out of the ordinary in the
// data is left to libjpeg: `give_up` is called, and the image begun again without this.
#pragma once

#include <cstddef>
#include <cstdint>
#include <cstdio>

#include <jpeglib.h>

namespace fastfeed {

constexpr int kLook = 11;  // bits looked at in one step; longer codes go the slow way

// One Huffman table of a file, made ready. Codes and symbols as in ITU T.81, annex F.2.2.3.
class Codes {
 public:
  // False: no valid table.
  bool set(const JHUFF_TBL& table, bool ac);

  struct Long {
    int symbol, length;  // length 0: no such code
  };
  Long find(uint32_t next16) const;

  // By the next kLook bits. Low byte: bits used, with the value's if they fit too (kWhole), 0 for a long code. Second
  // byte: zeros in front. Third and fourth: the value, signed, or how many bits it has.
  int32_t step[1 << kLook];
  // As many whole codes as fit, an end of block being the last. Low byte: bits used, 0 if none fits. Second byte:
  // coefficients passed. Third: 1 after an end of block.
  uint32_t leap[1 << kLook];

 private:
  uint8_t bits_[17] = {}, symbols_[256] = {};
  bool ac_ = false, ready_ = false;
  int32_t last_[18];  // largest code of each length, -1 for none
  int offset_[17];    // of a code's symbol in symbols_, less the code
};

class Entropy {
 public:
  using GiveUp = void (*)(j_common_ptr);  // does not return

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

  void restart(j_decompress_ptr info);

  Codes dc_[NUM_HUFF_TBLS], ac_[NUM_HUFF_TBLS];
  Block blocks_[D_MAX_BLOCKS_IN_MCU];
  GiveUp give_up_ = nullptr;
  int count_ = 0;
  unsigned columns_ = 0, column_ = 0, first_ = 0, last_ = 0;  // of MCUs: in a row, the next, those that are shown
  unsigned interval_ = 0, to_restart_ = 0, restarts_ = 0;
  int means_[MAX_COMPS_IN_SCAN];
  uint64_t held_ = 0;            // the next bits, from the top
  int bits_ = 0, invented_ = 0;  // how many, and how many of them are zeros behind the data
};

}  // namespace fastfeed
