// Headers of files of any format.
#pragma once

#include <cstddef>
#include <cstdint>

#include "image/header.h"

namespace fastfeed {

Header read_header(const uint8_t* data, size_t size);

// Bytes at most that decoding a region, shrunk by `denominator`, keeps at once, in addition to rows: the coefficients of a
// JPEG with several scans, the pixels of a WebP, a row of tiles of a TIFF.
size_t held_bytes(const Header& header, int denominator);

}  // namespace fastfeed
