// The orientation in an EXIF block.
#pragma once

#include <cstddef>
#include <cstdint>

namespace fastfeed {

// Of the first directory of a block that begins with its TIFF header; 1 where there is none or the block is broken.
uint8_t exif_orientation(const uint8_t* data, size_t size);

}  // namespace fastfeed
