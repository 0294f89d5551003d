// Reads rows of pixels from a file.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <memory>

#include "image/header.h"
#include "system/stop.h"

namespace fastfeed {

using Matte = std::array<uint8_t, 3>;  // RGB behind transparent pixels

// A sample over the matte's, blended and rounded as Pillow does it.
inline uint8_t over(unsigned value, unsigned alpha, unsigned matte) {
  const unsigned sum = value * alpha + matte * (255 - alpha) + 128;
  return uint8_t((sum + (sum >> 8)) >> 8);
}

// A part of the stored image, in pixels of the image shrunk by `denominator`.
struct Region {
  int denominator = 1;  // 1, 2, 4, 8
  int top = 0, left = 0, height = 0, width = 0;
  Matte matte{};
  bool gray = false;    // a JPEG's rows are its luma
  bool stored = false;  // a PNG's or TIFF's rows are its samples, as they are stored
};

// Decodes one region, top to bottom. Nothing here throws for what a file contains.
class RowReader {
 public:
  virtual ~RowReader() = default;

  Stop stop = nullptr;  // ends what takes long: start() with Status::cancelled, rows() with none

  // Begin; the region may come out wider to the left, never to the right: `left()` says where a row begins. `plain`
  // leaves everything to libjpeg.
  virtual Status start(const uint8_t* data, size_t size, const Header& header, const Region& region, bool plain) = 0;
  virtual int left() const = 0;
  virtual int channels() const { return 3; }  // of the rows below
  // The next rows of pixels, one after the other, valid until the next call; none after a failure or a stop.
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

}  // namespace fastfeed
