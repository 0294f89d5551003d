// PNGs without interlacing; of an animation the image that is no part of it, or its first. Others are declined.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <vector>

#include "image/header.h"
#include "png/inflate.h"
#include "image/row_reader.h"

namespace fastfeed {

bool is_png(const uint8_t* data, size_t size);

// Status::unsupported_format for every file that is not decoded here, damaged ones among them: Pillow says what is wrong
// with these.
Header read_png_header(const uint8_t* data, size_t size);

// Samples of a pixel, by the color type of the header: gray, RGB, palette, gray with alpha, RGB with alpha.
inline int png_samples(uint8_t color) { return (color & 2 && color != 3 ? 3 : 1) + (color & 4 ? 1 : 0); }

// The pixel data and the palette of a file whose header was accepted.
struct PngParts {
  std::vector<Chunk> pixels;
  Chunk palette{}, alpha{};  // entries of RGB; alpha of the first ones, or the transparent color, 16 bits per sample
};
// False where a checksum is wrong; those of metadata do not matter.
bool read_png_parts(const uint8_t* data, size_t size, PngParts& parts);

std::unique_ptr<RowReader> png_reader();

// Undoes the filter of a row of `size` bytes, `pixel` bytes per pixel. `above` is the row before; eight bytes before it and
// before `out` are zero. Both may be read and written for 16 bytes beyond their end. False where there is no such filter.
bool unfilter(uint8_t filter, int pixel, const uint8_t* in, const uint8_t* above, uint8_t* out, size_t size);
// Two rows whose filters are both Paeth's, in little more time than one takes.
constexpr uint8_t kPaeth = 4;
void unfilter_two(int pixel, const uint8_t* const (&in)[2], const uint8_t* above, uint8_t* const (&out)[2], size_t size);

}  // namespace fastfeed
