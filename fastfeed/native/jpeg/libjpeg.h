// Which libjpeg the native extension uses, and whether our Huffman decoders may run inside it.
#pragma once

#include <string>

namespace fastfeed {

// As its headers say: "3.1.3".
const char* libjpeg_version();
// Whether it was built with SIMD.
bool libjpeg_simd();
// Why its own Huffman decoders are used, and no planes; empty: ours are. Our decoders take the place of a function of a
// structure that is private to libjpeg, and planes have its inverse transforms chosen again, hence only in versions whose
// structures have been read, and after decoding one image both ways and shrinking one in planes.
const std::string& libjpeg_huffman_reason();

}  // namespace fastfeed
