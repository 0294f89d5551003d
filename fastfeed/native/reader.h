// Reads rows of RGB pixels from a JPEG: the interface to entropy decoding, inverse DCT and color conversion.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>

#include "header.h"

namespace fastfeed {

// A part of the stored image, in pixels of the image shrunk by `denominator`.
struct Region {
  int denominator = 1;  // 1, 2, 4, 8
  int top = 0, left = 0, height = 0, width = 0;
};

// Decodes one region, top to bottom. Nothing here throws for what a file contains.
class RowReader {
 public:
  virtual ~RowReader() = default;

  // Begin; the region may come out wider to the left, never to the right: `left()` says where a row begins. `plain`
  // leaves everything to libjpeg.
  virtual Status start(const uint8_t* data, size_t size, const Header& header, const Region& region, bool plain) = 0;
  virtual int left() const = 0;
  // The next rows of RGB pixels, one after the other, valid until the next call; none when decoding failed.
  struct Rows {
    const uint8_t* at;
    size_t stride;
    int count;
  };
  virtual Rows rows() = 0;
  // After the last row: whether all of the file is sound, as far as it was read, and ends where it should. Releases.
  virtual Status finish() = 0;
  // Whether the failure is not the file's: start again with `plain`.
  virtual bool gave_up() const = 0;
  // Releases the image's memory in any state.
  virtual void release() = 0;
};

// The reader on libjpeg-turbo. Keeps its memory between images; one thread at a time. Without `huffman` it leaves Huffman
// decoding to libjpeg.
std::unique_ptr<RowReader> libjpeg_reader(bool huffman);

// Bytes that decoding a region keeps at once, in addition to rows: the coefficients of a file with several scans.
size_t held_bytes(const Header& header);

}  // namespace fastfeed
