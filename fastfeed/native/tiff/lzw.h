// LZW as TIFF has it (TIFF 6.0, section 13).
#pragma once

#include <cstddef>
#include <cstdint>

#include "png/matches.h"

namespace fastfeed {

// Decompresses the first `size` bytes, less than 4 GB, of a strip or tile to `out`, behind which kBeyond bytes may be written. False where
// the data are damaged, end early, or begin without a clear code, as those of writers older than the specification.
bool decompress_lzw(const uint8_t* in, const uint8_t* end, uint8_t* out, size_t size);

}  // namespace fastfeed
