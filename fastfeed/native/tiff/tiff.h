// TIFFs of gray or RGB, in strips or tiles, uncompressed, LZW, deflate or PackBits. Others are declined.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <vector>

#include "image/header.h"
#include "image/row_reader.h"
#include "image/rgb_rows.h"

namespace fastfeed {

bool is_tiff(const uint8_t* data, size_t size);

// Status::unsupported_format for every file that is not decoded here, damaged ones among them: Pillow says what is wrong
// with these.
Header read_tiff_header(const uint8_t* data, size_t size);

// Where the pixels of the first image of a file lie, whose header was accepted. A strip is a tile as wide as the image.
struct TiffLayout {
  SampleLayout samples{};
  bool big_endian = false, differences = false;  // differences: of each sample to that of the pixel before (predictor 2)
  int compression = 1;
  int height = 0, width = 0, orientation = 1;
  int tile_height = 0, tile_width = 0;
  bool tiled = false;  // tiles are whole at the image's edges, too
  struct Piece {
    const uint8_t *at, *end;
  };
  std::vector<Piece> pieces;  // row after row of tiles

  int across() const { return (width + tile_width - 1) / tile_width; }
  int down() const { return (height + tile_height - 1) / tile_height; }
  int rows_of(int tile_row) const;  // that a row of tiles holds
  size_t tile_row_bytes() const { return size_t(tile_width) * samples.pixel(); }
  // Of a row of tiles, unpacked; 0 where they are not compressed.
  uint64_t unpacked_bytes() const {
    return compression == 1 ? 0 : uint64_t(tile_height) * uint64_t(across()) * tile_row_bytes();
  }
};
// False where the file is to be declined.
bool read_tiff_layout(const uint8_t* data, size_t size, TiffLayout& layout);

std::unique_ptr<RowReader> tiff_reader();

}  // namespace fastfeed
