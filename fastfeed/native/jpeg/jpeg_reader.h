// Reads a JPEG with libjpeg-turbo: rows of RGB pixels, or its components one by one.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <memory>

#include "image/row_reader.h"

namespace fastfeed {

// A JPEG's components can also be read one by one, as they are stored: chroma not enlarged, colors not converted.
class JpegReader : public RowReader {
 public:
  using Denominators = std::array<int, 3>;  // by component: 1, 2, 4, 8
  // Begins as start() does, with all rows, and at least these columns of the image shrunk by the first denominator.
  // Status::unsupported_format: the components are not luma, or luma and chroma.
  virtual Status start_planes(const uint8_t* data, size_t size, const Header& header, const Denominators& denominators,
                              int left, int width, bool plain) = 0;
  // The next rows of samples of each component, from the left edge on; as rows().
  virtual std::array<Rows, 3> planes() = 0;
  // Whether all of a file is sound, of any number of components: its coded data are read to their end, no pixels are kept.
  virtual Status check(const uint8_t* data, size_t size) = 0;
};

// The reader on libjpeg-turbo. Keeps its memory between images; one thread at a time. Without `huffman` it leaves Huffman
// decoding to libjpeg, and has no planes.
std::unique_ptr<JpegReader> libjpeg_reader(bool huffman);

// Bytes at most that decoding a JPEG with several scans, shrunk by `denominator`, keeps at once, in addition to rows.
size_t jpeg_held_bytes(const Header& header, int denominator);
// Likewise of one that is read in planes.
size_t jpeg_held_bytes(const Header& header, const JpegReader::Denominators& denominators);

}  // namespace fastfeed
