// One Huffman table of a JPEG, prepared for lookup. Codes and symbols as in ITU T.81, annex F.2.2.
#pragma once

#include <cstddef>
#include <cstdint>
#include <cstdio>

#include <jpeglib.h>

namespace fastfeed {

constexpr int kEnded = 128;  // more coefficients than a block has, whatever came before
constexpr int kLook = 11;  // bits looked at in one step; longer codes take the slow path

class Codes {
 public:
  // False: the table is invalid.
  bool set(const JHUFF_TBL& table, bool ac);

  struct Long {
    int symbol, length;  // length 0: no such code
  };
  Long find(uint32_t next16) const;

  // By the next kLook bits. Low byte: bits used, with the value's if they fit too (kWhole), 0 for a long code. Second
  // byte: zeros in front. Third and fourth: the value, signed, or how many bits it has.
  int32_t step[1 << kLook];
  // Of AC codes, the next two that are whole, or the next one twice, or none: bits used, 0 for a long code.
  // `passed`: coefficients, kEnded after an end of block. A value belongs to the coefficient `at` places further.
  struct Pair {
    uint8_t bits, passed, at[2];
    int16_t value[2];
  };
  Pair pair[1 << kLook];
  // As many whole codes as fit, an end of block being the last. Low byte: bits used, 0 if none fits. Second byte:
  // coefficients passed. Third: 1 after an end of block.
  uint32_t leap[1 << kLook];

 private:
  Pair pair_at(unsigned start) const;

  uint8_t bits_[17] = {}, symbols_[256] = {};
  bool ac_ = false, ready_ = false;
  int32_t last_[18];  // largest code of each length, -1 for none
  int offset_[17];    // of a code's symbol in symbols_, less the code
};

}  // namespace fastfeed
