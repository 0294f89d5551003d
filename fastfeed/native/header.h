// Reads a JPEG's markers, before any pixel is decoded.
#pragma once

#include <cstddef>
#include <cstdint>

namespace fastfeed {

// Results per sample; the names are those of fastfeed.faults.REASONS.
enum class Status : int8_t { ok, truncated, corrupt, unsupported_format, bomb, not_image, cancelled };

enum class Icc : uint8_t { none, srgb, other };

struct Header {
  Status status = Status::not_image;
  int32_t height = 0, width = 0;  // stored pixels
  uint8_t orientation = 1;        // EXIF, 1..8
  uint8_t components = 0;
  uint8_t sof = 0;  // second byte of the frame's marker: 0xC0 baseline, 0xC1 extended, 0xC2 progressive, ...
  uint8_t precision = 0;
  uint8_t together = 0;  // components in the first scan; fewer than there are: more scans follow
  uint16_t restart_interval = 0;
  Icc icc = Icc::none;

  bool progressive() const { return sof == 0xC2 || sof == 0xC6 || sof == 0xCA || sof == 0xCE; }
  bool several_scans() const { return progressive() || together < components; }
  int32_t shown_height() const { return orientation >= 5 ? width : height; }
  int32_t shown_width() const { return orientation >= 5 ? height : width; }
};

Header read_header(const uint8_t* data, size_t size);

}  // namespace fastfeed
