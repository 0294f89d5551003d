#include <cstring>

#include "system/checksums.h"
#include "image/exif.h"
#include "png/png.h"

namespace fastfeed {
namespace {

constexpr uint8_t kSignature[8] = {0x89, 'P', 'N', 'G', '\r', '\n', 0x1A, '\n'};
constexpr size_t kAround = 12;  // bytes of a chunk around its content: length, name, checksum
constexpr int64_t kMostRow = int64_t(1) << 20;  // bytes

uint32_t number(const uint8_t* p) { return uint32_t(p[0]) << 24 | uint32_t(p[1]) << 16 | uint32_t(p[2]) << 8 | p[3]; }

// Calls each(name, content, size) for every chunk to IEND, until it returns false. False as well where the file ends early.
template <class Each>
bool chunks(const uint8_t* data, size_t size, const Each& each) {
  for (size_t at = sizeof kSignature; size - at >= kAround;) {
    const size_t length = number(data + at);
    if (length > size - at - kAround) return false;
    const uint8_t* name = data + at + 4;
    if (!each(name, name + 4, length)) return false;
    if (std::memcmp(name, "IEND", 4) == 0) return true;
    at += kAround + length;
  }
  return false;
}

bool is(const uint8_t* name, const char* other) { return std::memcmp(name, other, 4) == 0; }

bool depth_fits(uint8_t color, uint8_t depth) {
  const bool few = depth == 1 || depth == 2 || depth == 4;
  if (color == 0) return few || depth == 8 || depth == 16;
  if (color == 2 || color == 4 || color == 6) return depth == 8 || depth == 16;
  return color == 3 && (few || depth == 8);
}

bool has_letters(const uint8_t* name) {
  for (int i = 0; i < 4; ++i)
    if ((name[i] | 32) < 'a' || (name[i] | 32) > 'z') return false;
  return true;
}

bool is_ancillary(const uint8_t* name) { return (name[0] & 32) != 0; }

}  // namespace

bool is_png(const uint8_t* data, size_t size) {
  return size >= sizeof kSignature && std::memcmp(data, kSignature, sizeof kSignature) == 0;
}

Header read_png_header(const uint8_t* data, size_t size) {
  Header header;
  header.format = Format::png;
  header.status = Status::unsupported_format;
  bool first = true, pixels = false, over = false, palette = false, alpha = false, exif = false;
  size_t colors = 0;
  const bool whole = chunks(data, size, [&](const uint8_t* name, const uint8_t* content, size_t length) {
    if (first != is(name, "IHDR")) return false;
    if (first) {
      first = false;
      if (length != 13) return false;
      const uint32_t width = number(content), height = number(content + 4);
      const bool plain = content[10] == 0 && content[11] == 0 && content[12] == 0;  // methods, and no interlacing
      if (!plain || !depth_fits(content[9], content[8]) || !width || !height || width > 1u << 24 || height > 1u << 24)
        return false;
      header.width = int32_t(width), header.height = int32_t(height);
      header.precision = content[8], header.color = content[9];
      header.components = header.color == 0 || header.color == 4 ? 1 : 3;
      return true;
    }
    if (is(name, "IDAT")) {
      pixels = true;
      return !over && (header.color != 3 || palette);
    }
    over = pixels;
    if (is(name, "PLTE")) {
      const bool once = !palette && !pixels;
      palette = true;
      colors = length / 3;
      return once && length > 0 && length % 3 == 0 && length <= 768;
    }
    if (is(name, "IEND")) return true;
    if (is(name, "tRNS")) {  // alpha of a palette's first colors, or the color that is transparent
      const bool once = !alpha && !pixels && (palette || header.color != 3);
      alpha = true;
      if (header.color == 3) return once && length > 0 && length <= colors;
      return once && (header.color == 0 || header.color == 2) && length == 2 * size_t(png_samples(header.color));
    }
    if (is(name, "eXIf")) {
      if (!exif) header.orientation = exif_orientation(content, length).value;
      exif = true;
      return true;
    }
    return has_letters(name) && is_ancillary(name);  // whatever it holds, and in whatever state it is, does not matter
  });
  if (!whole || !pixels) return header;
  if (int64_t(header.width) * header.precision * png_samples(header.color) / 8 > kMostRow) return header;
  header.status = Status::ok;
  return header;
}

bool read_png_parts(const uint8_t* data, size_t size, PngParts& parts) {
  parts.pixels.clear();
  parts.palette = parts.alpha = {};
  return chunks(data, size, [&](const uint8_t* name, const uint8_t* content, size_t length) {
    if (is(name, "IDAT") && length) parts.pixels.push_back({content, content + length});
    if (is(name, "PLTE")) parts.palette = {content, content + length};
    if (is(name, "tRNS")) parts.alpha = {content, content + length};
    const bool shows = !is_ancillary(name) || is(name, "tRNS");
    return !kVerified || !shows || crc32(name, length + 4) == number(content + length);
  });
}

}  // namespace fastfeed
