#include "reader.h"

#include <algorithm>
#include <csetjmp>
#include <cstdio>
#include <cstring>
#include <vector>

#include <jpeglib.h>

#include "coefficients.h"
#include "entropy.h"
#include "jpeg_errors.h"
#include "jpeg_source.h"
#include "progressive.h"
#include "webp.h"

namespace fastfeed {
namespace {

constexpr int kRows = 8;  // rows per call

// jpeg_crop_scanline assumes that all components are shrunk equally. One that is shrunk less and still has to be
// widened, as the chroma of 4 x 2 sampling at a half, comes out wrong at the right edge: such files are read in full width.
bool crops_well(const jpeg_decompress_struct& info) {
  int least = DCTSIZE;
  for (int i = 0; i < info.num_components; ++i) least = std::min(least, shrunk_size(info.comp_info[i]));
  for (int i = 0; i < info.num_components; ++i) {
    const int own = shrunk_size(info.comp_info[i]);
    if (own != least && info.comp_info[i].h_samp_factor * own != info.max_h_samp_factor * least) return false;
  }
  return true;
}

class LibjpegReader final : public RowReader {
 public:
  explicit LibjpegReader(bool huffman) : huffman_(huffman) {
    std::memset(&info_, 0, sizeof info_);
    catch_errors(&info_, errors_);
    if (setjmp(errors_.jump)) {
      broken_ = true;
      return;
    }
    jpeg_create_decompress(&info_);
    watch_progress(&info_, errors_);
    errors_.coefficients = &coefficients_;
    coefficients_.attach(&info_);
    source_.attach(&info_);
  }

  ~LibjpegReader() override { jpeg_destroy_decompress(&info_); }
  LibjpegReader(const LibjpegReader&) = delete;
  LibjpegReader& operator=(const LibjpegReader&) = delete;

  Status start(const uint8_t* data, size_t size, const Header& header, const Region& region, bool plain) override {
    if (broken_) return Status::bomb;
    release();
    errors_.status = Status::ok;
    errors_.damaged = errors_.gave_up = false;
    errors_.progressive = nullptr;
    errors_.stop = stop;
    source_.open(data, size);
    Status status = open(header, region, plain);
    if (status == Status::ok) {
      rows_.resize(size_t(kRows) * info_.output_width * 3);
      bottom_ = JDIMENSION(region.top + region.height);
      status = skip_to(region.top);
    }
    if (status != Status::ok) release();
    return status;
  }

  int left() const override { return int(left_); }

  Rows rows() override {
    const size_t stride = size_t(info_.output_width) * 3;
    return {rows_.data(), stride, errors_.status == Status::ok ? fill(stride) : 0};
  }

  Status finish() override {
    if (errors_.status == Status::ok && errors_.damaged) errors_.status = Status::corrupt;
    // a progressive file has been read to its end; of another, what lies below the region has not been looked at
    if (errors_.status == Status::ok && info_.unread_marker != JPEG_EOI && !jpeg_input_complete(&info_) &&
        !source_.ends_properly())
      errors_.status = Status::truncated;
    release();
    return errors_.status;
  }

  bool gave_up() const override { return errors_.gave_up; }

  void release() override {
    jpeg_abort_decompress(&info_);
    progressive_.release();
    for (auto& table : info_.quant_tbl_ptrs) table = nullptr;
    for (auto& table : info_.dc_huff_tbl_ptrs) table = nullptr;
    for (auto& table : info_.ac_huff_tbl_ptrs) table = nullptr;
    coefficients_.release();
    source_.close();
  }

 private:
  Status open(const Header& header, const Region& region, bool plain) {
    if (setjmp(errors_.jump)) return errors_.status;
    jpeg_read_header(&info_, TRUE);
    if (info_.num_components != 1 && info_.num_components != 3) return errors_.status = Status::unsupported_format;
    if (info_.jpeg_color_space == JCS_CMYK || info_.jpeg_color_space == JCS_YCCK)
      return errors_.status = Status::unsupported_format;
    if (int32_t(info_.image_width) != header.width || int32_t(info_.image_height) != header.height)
      return errors_.status = Status::corrupt;  // what was checked is not what would be decoded
    if (jpeg_has_multiple_scans(&info_) && !header.several_scans()) return errors_.status = Status::corrupt;
    info_.out_color_space = JCS_RGB;
    info_.scale_num = 1;
    info_.scale_denom = unsigned(region.denominator);
    info_.dct_method = JDCT_ISLOW;
    info_.do_block_smoothing = FALSE;  // guesses the content of missing scans, and not the same at the edge of a region
    const bool own = huffman_ && !plain && !info_.arith_code;
    if (info_.progressive_mode) {
      jpeg_calc_output_dimensions(&info_);
      source_.leave_out_scans(info_);
      coefficients_.choose(info_, !own);
      if (own) progressive_.prepare(&info_), errors_.progressive = &progressive_;
    }
    jpeg_start_decompress(&info_);
    errors_.progressive = nullptr;
    const bool crop = crops_well(info_);
    left_ = crop ? JDIMENSION(region.left) : 0;
    JDIMENSION width = crop ? JDIMENSION(region.width) : info_.output_width;
    if (left_ > 0 || width < info_.output_width) jpeg_crop_scanline(&info_, &left_, &width);
    if (own && !header.several_scans()) entropy_.attach(&info_, JDIMENSION(region.top), left_, width, give_up);
    return Status::ok;
  }

  Status skip_to(int top) {
    if (setjmp(errors_.jump)) return errors_.status;
    if (top > 0) jpeg_skip_scanlines(&info_, JDIMENSION(top));
    return Status::ok;
  }

  int fill(size_t stride) {
    JSAMPROW rows[kRows];
    for (int i = 0; i < kRows; ++i) rows[i] = rows_.data() + size_t(i) * stride;
    if (setjmp(errors_.jump)) return 0;
    // libjpeg hands over as many as it has ready, of a subsampled file one or two
    const JDIMENSION want = std::min(JDIMENSION(kRows), bottom_ - info_.output_scanline);
    JDIMENSION count = 0;
    while (count < want) {
      const JDIMENSION more = jpeg_read_scanlines(&info_, rows + count, want - count);
      if (!more) break;
      count += more;
    }
    return int(count);
  }

  jpeg_decompress_struct info_;
  JpegErrors errors_{};
  JpegSource source_;
  Coefficients coefficients_;
  Entropy entropy_;
  Progressive progressive_;
  std::vector<uint8_t> rows_;
  JDIMENSION left_ = 0, bottom_ = 0;
  bool broken_ = false;
  const bool huffman_;
};

}  // namespace

std::unique_ptr<RowReader> libjpeg_reader(bool huffman) { return std::make_unique<LibjpegReader>(huffman); }

size_t held_bytes(const Header& header, int denominator) {
  if (header.format == Format::webp) return webp_bytes(header, denominator);
  if (header.format == Format::tiff) return header.unpacked_bytes;
  if (!header.several_scans()) return 0;
  int across = 1, down = 1;
  for (const uint8_t both : header.sampling) across = std::max(across, both >> 4), down = std::max(down, both & 15);
  size_t bits = 0;  // per block of the finest component
  for (int i = 0; i < header.components; ++i) {
    const int own_across = header.sampling[i] >> 4, own_down = header.sampling[i] & 15;
    // at an eighth, the others are shrunk less
    const bool mean_only = denominator == 8 && header.progressive() && (own_across * 2 > across || own_down * 2 > down);
    const size_t part = size_t(mean_only ? 16 : DCTSIZE2 * 17);  // 16 bits each, and one for whether it is known
    bits += part * size_t(std::max(own_across * own_down, 1)) / size_t(across * down) + 1;
  }
  return size_t(header.height + 64) * size_t(header.width + 64) / DCTSIZE2 * bits / 8;
}

}  // namespace fastfeed
