// WebP files of one frame, by libwebp. Others are declined, and all if built without libwebp.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <string>

#include "image/header.h"
#include "image/row_reader.h"

namespace fastfeed {

bool is_webp(const uint8_t* data, size_t size);

// Status::unsupported_format for every file that is not decoded here, damaged ones among them: Pillow says what is wrong
// with these.
Header read_webp_header(const uint8_t* data, size_t size);

// Bytes at most that a file keeps while it is decoded, shrunk by `denominator`.
size_t webp_bytes(const Header& header, int denominator);

std::unique_ptr<RowReader> webp_reader();

// Such as "1.6.0"; empty where the native extension is built without libwebp.
std::string libwebp_version();

// One row of pixels that are each the mean of `by` x `by` of the image, from the planes of a part of it (chroma of half the
// size, as WebP has it), whose size need not be a multiple of `by`.
struct Planes {
  const uint8_t *y, *u, *v;
  size_t y_stride, uv_stride;
  int height, width;  // of luma
};
void mean_row(const Planes& planes, int by, int row, uint8_t* rgb);

}  // namespace fastfeed
