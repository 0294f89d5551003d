// What comes before the pixels of a JPEG, PNG, WebP or TIFF.
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>

namespace fastfeed {

// Results per sample; the names are those of fastfeed.faults.REASONS, but for `no_memory`, which is no sample's fault:
// all that is allocated follows from dimensions that `admit` has accepted.
enum class Status : int8_t { ok, truncated, corrupt, unsupported_format, bomb, not_image, cancelled, no_memory };

enum class Icc : uint8_t { none, srgb, other };

enum class Format : uint8_t { jpeg, png, webp, tiff };

struct Header {
  Status status = Status::not_image;
  int32_t height = 0, width = 0;  // stored pixels
  uint8_t orientation = 1;        // EXIF, 1..8
  bool plain_exif = true;         // of a JPEG: one block at most, whose orientation all readers take to be the same
  Format format = Format::jpeg;
  uint8_t components = 0;
  uint8_t color = 0;  // of all but JPEGs: 0 gray, 2 RGB, 3 palette, 4 gray with alpha, 6 RGB with alpha
  bool lossless = false;  // of a WebP
  uint32_t unpacked_bytes = 0;  // of a TIFF: what its decoder holds at once
  uint8_t sof = 0;  // second byte of the frame's marker: 0xC0 baseline, 0xC1 extended, 0xC2 progressive, ...
  uint8_t precision = 0;  // bits
  uint8_t sampling[3] = {};  // of a JPEG's components: samples across, and down, four bits each
  bool rgb = false;  // a JPEG's components are red, green and blue, as libjpeg tells them from luma and chroma
  uint8_t together = 0;  // components in the first scan; fewer than there are: more scans follow
  uint16_t restart_interval = 0;
  Icc icc = Icc::none;

  bool progressive() const { return sof == 0xC2 || sof == 0xC6 || sof == 0xCA || sof == 0xCE; }
  bool several_scans() const { return format == Format::jpeg && (progressive() || together < components); }
  // Of a JPEG: samples of the finest component, each way.
  int most_across() const { return std::max({sampling[0] >> 4, sampling[1] >> 4, sampling[2] >> 4, 1}); }
  int most_down() const { return std::max({sampling[0] & 15, sampling[1] & 15, sampling[2] & 15, 1}); }
  int32_t shown_height() const { return orientation >= 5 ? width : height; }
  int32_t shown_width() const { return orientation >= 5 ? height : width; }
};

}  // namespace fastfeed
