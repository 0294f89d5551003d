// JPEG compression without a file: what Huffman codes would say is lossless, so it need not be written. The pixels are
// those of libjpeg-turbo's accurate ("islow") methods, 4:2:0, with smooth ("fancy") upsampling.
#include <algorithm>
#include <cstring>

#include "ops/filters.h"
#include "ops/jpeg_tables.h"

#ifndef FASTFEED_OPS_JPEG_PLANES
#define FASTFEED_OPS_JPEG_PLANES
namespace fastfeed {
namespace {

constexpr int kLumaRows = 32, kChromaRows = 16;  // two rows of blocks of each: chroma needs neighbors

struct JpegPlanes {
  uint8_t *y, *cb, *cr;
  int16_t* sums;
  size_t stride;  // bytes, and numbers of each row of sums
  uint8_t* luma(int row) const { return y + size_t(row % kLumaRows) * stride; }
  uint8_t* chroma(bool red, int row) const { return (red ? cr : cb) + size_t(row % kChromaRows) * stride; }
};

}  // namespace
}  // namespace fastfeed
#endif

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "ops/jpeg_compression.cpp"
#include <hwy/foreach_target.h>
#include <hwy/highway.h>

#include "ops/jpeg_blocks-inl.h"
#include "ops/jpeg_colors-inl.h"

HWY_BEFORE_NAMESPACE();
namespace fastfeed {
namespace HWY_NAMESPACE {
namespace {

// Rows 2 * row and 2 * row + 1 of the image as a row of chroma; below the image the last ones again.
void take_rows(const Image& image, int row, const JpegPlanes& planes) {
  if (2 * row < image.height) {
    const uint8_t *first = image.at + size_t(2 * row) * image.row(), *second = first;
    if (2 * row + 1 < image.height) second += image.row();
    split_rows(first, second, image.width, planes.luma(2 * row), planes.luma(2 * row + 1), planes.chroma(false, row),
               planes.chroma(true, row));
    return;
  }
  for (int k = 0; k < 2; ++k) std::memcpy(planes.luma(2 * row + k), planes.luma(2 * row - 1), planes.stride);
  for (const bool red : {false, true}) std::memcpy(planes.chroma(red, row), planes.chroma(red, row - 1), planes.stride);
}

// The rows of the image that are made from this row of chroma and its neighbors.
void give_rows(Image& image, int row, const JpegPlanes& planes) {
  const int last = (image.height - 1) / 2;
  for (int k = 0; k < 2 && 2 * row + k < image.height; ++k) {
    const int next = std::clamp(row + 2 * k - 1, 0, last);
    const uint8_t* near[2] = {planes.chroma(false, row), planes.chroma(true, row)};
    const uint8_t* far[2] = {planes.chroma(false, next), planes.chroma(true, next)};
    uint8_t* out = image.at + size_t(2 * row + k) * image.row();
    merge_row(planes.luma(2 * row + k), near, far, image.width, out, planes.sums, planes.stride);
  }
}

void compress_rgb(Image& image, const JpegTable& luma, const JpegTable& chroma, const JpegPlanes& planes) {
  const int width = (image.width + 7) / 8, chroma_width = (image.width + 15) / 16, end = (image.height + 1) / 2;
  int done = 0;
  for (int row = 0; row < end; row += 8) {
    for (int k = 0; k < 8; ++k) take_rows(image, row + k, planes);
    compress_blocks(planes.luma(2 * row), planes.stride, width, luma);
    if (2 * row + 8 < image.height) compress_blocks(planes.luma(2 * row + 8), planes.stride, width, luma);
    for (const bool red : {false, true}) compress_blocks(planes.chroma(red, row), planes.stride, chroma_width, chroma);
    for (; done < (row + 8 < end ? row + 7 : end); ++done) give_rows(image, done, planes);
  }
}

void compress_gray(Image& image, const JpegTable& luma, const JpegPlanes& planes) {
  const size_t width = size_t(image.width);
  for (int row = 0; row < image.height; row += 8) {
    for (int k = 0; k < 8; ++k) {
      uint8_t* at = planes.luma(k);
      std::memcpy(at, image.at + size_t(std::min(row + k, image.height - 1)) * width, width);
      std::memset(at + width, at[width - 1], 8);
    }
    compress_blocks(planes.luma(0), planes.stride, (image.width + 7) / 8, luma);
    for (int k = 0; k < std::min(8, image.height - row); ++k)
      std::memcpy(image.at + size_t(row + k) * width, planes.luma(k), width);
  }
}

}  // namespace
}  // namespace HWY_NAMESPACE
}  // namespace fastfeed
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace fastfeed {

HWY_EXPORT(compress_rgb);
HWY_EXPORT(compress_gray);

void jpeg_compression(Image& image, int quality, Scratch& scratch) {
  JpegTable luma, chroma;
  fill_table(luma, quality, false);
  Scratch::Frame frame(scratch);
  JpegPlanes planes;
  planes.stride = (size_t(image.width) + 63) / 64 * 64 + 64;  // vectors may go on beyond the edge
  planes.y = frame.bytes(kLumaRows * planes.stride);
  if (image.channels == 1) return HWY_DYNAMIC_DISPATCH(compress_gray)(image, luma, planes);
  fill_table(chroma, quality, true);
  planes.cb = frame.bytes(kChromaRows * planes.stride);
  planes.cr = frame.bytes(kChromaRows * planes.stride);
  planes.sums = frame.take<int16_t>(2 * planes.stride);
  HWY_DYNAMIC_DISPATCH(compress_rgb)(image, luma, chroma, planes);
}

}  // namespace fastfeed
#endif
