// Which libjpeg the kernel uses, and whether our Huffman decoders may run inside it.
#pragma once

#include <string>

namespace fastfeed {

// As its headers say: "3.1.3".
const char* libjpeg_version();
// Whether it was built with SIMD.
bool libjpeg_simd();
// Why its own Huffman decoders are used; empty: ours are. Our decoders take the place of a function of a structure that
// is private to libjpeg, hence only in versions whose structure has been read, and after decoding one image both ways.
const std::string& libjpeg_huffman_reason();

}  // namespace fastfeed
