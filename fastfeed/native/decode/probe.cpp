#include "decode/probe.h"

#include "jpeg/jpeg_header.h"
#include "jpeg/jpeg_reader.h"
#include "png/png.h"
#include "tiff/tiff.h"
#include "webp/webp.h"

namespace fastfeed {

Header read_header(const uint8_t* data, size_t size) {
  if (is_png(data, size)) return read_png_header(data, size);
  if (is_webp(data, size)) return read_webp_header(data, size);
  if (is_tiff(data, size)) return read_tiff_header(data, size);
  return read_jpeg_header(data, size);
}

size_t held_bytes(const Header& header, int denominator) {
  switch (header.format) {
    case Format::webp: return webp_bytes(header, denominator);
    case Format::tiff: return header.unpacked_bytes;
    default: return jpeg_held_bytes(header, denominator);
  }
}

}  // namespace fastfeed
