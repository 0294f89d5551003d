// The orientation in an EXIF block.
#pragma once

#include <cstddef>
#include <cstdint>

namespace fastfeed {

struct Orientation {
  uint8_t value = 1;  // 1..8
  bool plain = true;  // all readers take the same: one SHORT, or no entry
};

// The rule of decode/exif.py: of the first directory of a block, or of a TIFF, the first entry, if it is one BYTE, SHORT or
// LONG; otherwise 1. The block may have the prefix of a JPEG's.
Orientation exif_orientation(const uint8_t* data, size_t size);

}  // namespace fastfeed
