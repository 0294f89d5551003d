#include "jpeg/jpeg_reader.h"

#include <algorithm>
#include <csetjmp>
#include <cstdio>
#include <cstring>
#include <vector>

#include <jpeglib.h>

#include "jpeg/coefficients.h"
#include "jpeg/entropy.h"
#include "jpeg/jpeg_errors.h"
#include "jpeg/jpeg_source.h"
#include "jpeg/progressive.h"

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

class LibjpegReader final : public JpegReader {
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
    if (huffman_) watch_restarts(&info_, errors_);
    errors_.coefficients = &coefficients_;
    coefficients_.attach(&info_);
    source_.attach(&info_);
  }

  ~LibjpegReader() override { jpeg_destroy_decompress(&info_); }
  LibjpegReader(const LibjpegReader&) = delete;
  LibjpegReader& operator=(const LibjpegReader&) = delete;

  Status start(const uint8_t* data, size_t size, const Header& header, const Region& region, bool plain) override {
    Status status = open(data, size, header, region, nullptr, plain);
    if (status == Status::ok) {
      rows_.resize(size_t(kRows) * info_.output_width * 3);
      bottom_ = JDIMENSION(region.top + region.height);
      status = skip_to(region.top);
    }
    if (status != Status::ok) release();
    return status;
  }

  Status start_planes(const uint8_t* data, size_t size, const Header& header, const Denominators& denominators, int left,
                      int width, bool plain) override {
    Region region;
    region.denominator = denominators[0], region.left = left, region.width = width;
    Status status = huffman_ ? open(data, size, header, region, &denominators, plain) : Status::unsupported_format;
    for (int i = 0; status == Status::ok && i < info_.num_components; ++i) {
      const jpeg_component_info& part = info_.comp_info[i];
      if (part.h_samp_factor << 4 != (header.sampling[i] & 0xF0) || part.v_samp_factor != (header.sampling[i] & 15))
        status = Status::unsupported_format;
    }
    if (status != Status::ok) {
      release();
      return status;
    }
    size_t all = 0;
    for (int i = 0; i < info_.num_components; ++i) all += rows_of(i) * stride_of(i);
    rows_.resize(all);
    next_row_ = {};
    return status;
  }

  int left() const override { return int(left_); }
  int channels() const override { return info_.output_components; }

  Rows rows() override {
    const size_t stride = size_t(info_.output_width) * size_t(info_.output_components);
    return {rows_.data(), stride, errors_.status == Status::ok ? fill(stride) : 0};
  }

  std::array<Rows, 3> planes() override {
    std::array<Rows, 3> result{};
    if (errors_.status != Status::ok || !fill_planes()) return result;
    const uint8_t* at = rows_.data();
    for (int i = 0; i < info_.num_components; ++i) {
      const jpeg_component_info& part = info_.comp_info[i];
      const int64_t samples = int64_t(info_.image_height) * part.v_samp_factor * shrunk_size(part);
      const int64_t whole = int64_t(info_.max_v_samp_factor) * DCTSIZE, height = (samples + whole - 1) / whole;
      const int rows = int(rows_of(i));
      int64_t& next = next_row_[size_t(i)];
      result[size_t(i)] = {at, stride_of(i), int(std::clamp<int64_t>(height - next, 0, rows))};
      next += rows;
      at += rows_of(i) * stride_of(i);
    }
    return result;
  }

  Status check(const uint8_t* data, size_t size) override {
    if (broken_) return Status::no_memory;
    begin(data, size);
    if (!setjmp(errors_.jump)) {
      jpeg_read_header(&info_, TRUE);
      info_.out_color_space = info_.jpeg_color_space;
      info_.scale_num = 1;
      info_.scale_denom = DCTSIZE;  // fewest pixels
      info_.do_block_smoothing = FALSE;
      jpeg_start_decompress(&info_);
      rows_.resize(size_t(info_.output_width) * size_t(info_.output_components));
      JSAMPROW row = rows_.data();
      while (info_.output_scanline < info_.output_height && jpeg_read_scanlines(&info_, &row, 1)) {
      }
    }
    return finish();
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
  void begin(const uint8_t* data, size_t size) {
    release();
    errors_.status = Status::ok;
    errors_.damaged = errors_.gave_up = false;
    errors_.progressive = nullptr;
    errors_.stop = stop;
    source_.open(data, size);
  }

  // `planes`: components one by one.
  Status open(const uint8_t* data, size_t size, const Header& header, const Region& region, const Denominators* planes,
              bool plain) {
    if (broken_) return Status::no_memory;
    begin(data, size);
    if (setjmp(errors_.jump)) return errors_.status;
    jpeg_read_header(&info_, TRUE);
    if (info_.num_components != 1 && info_.num_components != 3) return errors_.status = Status::unsupported_format;
    if (info_.jpeg_color_space == JCS_CMYK || info_.jpeg_color_space == JCS_YCCK)
      return errors_.status = Status::unsupported_format;
    if (planes && info_.jpeg_color_space != JCS_YCbCr && info_.jpeg_color_space != JCS_GRAYSCALE)
      return errors_.status = Status::unsupported_format;
    if (!is_as_checked(header)) return errors_.status = Status::corrupt;
    info_.raw_data_out = planes ? TRUE : FALSE;
    info_.out_color_space = planes ? info_.jpeg_color_space : region.gray ? JCS_GRAYSCALE : JCS_RGB;
    info_.scale_num = 1;
    info_.scale_denom = unsigned(region.denominator);
    info_.dct_method = JDCT_ISLOW;
    info_.do_block_smoothing = FALSE;  // guesses the content of missing scans, and not the same at the edge of a region
    const bool own = huffman_ && !plain && !info_.arith_code;
    if (info_.progressive_mode) {
      jpeg_calc_output_dimensions(&info_);
      if (planes) shrink(*planes);
      source_.leave_out_scans(info_);
      coefficients_.choose(info_, !own);
      if (own) progressive_.prepare(&info_), errors_.progressive = &progressive_;
    }
    jpeg_start_decompress(&info_);
    errors_.progressive = nullptr;
    left_ = 0;
    JDIMENSION width = info_.output_width;
    if (planes) {
      shrink(*planes);
      for (int i = 0; i < info_.num_components; ++i) {
        jpeg_component_info& part = info_.comp_info[i];
        part.MCU_sample_width = part.MCU_width * shrunk_size(part);
      }
      reinterpret_cast<Transform*>(info_.idct)->start_pass(&info_);  // chooses by size
      left_ = JDIMENSION(region.left), width = JDIMENSION(region.width);
    } else {
      if (crops_well(info_)) left_ = JDIMENSION(region.left), width = JDIMENSION(region.width);
      if (left_ > 0 || width < info_.output_width) jpeg_crop_scanline(&info_, &left_, &width);
    }
    if (own && !header.several_scans()) entropy_.attach(&info_, JDIMENSION(region.top), left_, width, give_up);
    return Status::ok;
  }

  // What was checked is what would be decoded.
  bool is_as_checked(const Header& header) {
    if (int32_t(info_.image_width) != header.width || int32_t(info_.image_height) != header.height) return false;
    return header.several_scans() || !jpeg_has_multiple_scans(&info_);
  }

  // libjpeg itself shrinks chroma less than luma, so that there is less to enlarge.
  void shrink(const Denominators& denominators) {
    for (int i = 0; i < info_.num_components; ++i)
      set_shrunk_size(info_.comp_info[i], DCTSIZE / denominators[size_t(i)]);
  }

  // Of a component: rows per call, and samples of one.
  size_t rows_of(int i) const {
    return size_t(info_.comp_info[i].v_samp_factor) * size_t(shrunk_size(info_.comp_info[i]));
  }
  size_t stride_of(int i) const {
    return size_t(info_.comp_info[i].width_in_blocks) * size_t(shrunk_size(info_.comp_info[i]));
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

  bool fill_planes() {
    constexpr size_t kMost = MAX_SAMP_FACTOR * DCTSIZE;
    JSAMPROW rows[3][kMost];
    JSAMPARRAY parts[3] = {rows[0], rows[1], rows[2]};
    uint8_t* at = rows_.data();
    for (int i = 0; i < info_.num_components; ++i)
      for (size_t y = 0; y < rows_of(i); ++y, at += stride_of(i)) rows[i][y] = at;
    if (setjmp(errors_.jump)) return false;
    return jpeg_read_raw_data(&info_, parts, JPEG_MAX_DIMENSION) > 0;
  }

  jpeg_decompress_struct info_;
  JpegErrors errors_{};
  JpegSource source_;
  Coefficients coefficients_;
  Entropy entropy_;
  Progressive progressive_;
  std::vector<uint8_t> rows_;
  std::array<int64_t, 3> next_row_{};  // of each plane
  JDIMENSION left_ = 0, bottom_ = 0;
  bool broken_ = false;
  const bool huffman_;
};

// Of a file with several scans; means(i): of component i, of a progressive file, only the means are kept.
template <class Means>
size_t coefficient_bytes(const Header& header, const Means& means) {
  if (!header.several_scans()) return 0;
  size_t bits = 0;  // per block of the finest component
  for (int i = 0; i < header.components; ++i) {
    const int own = (header.sampling[i] >> 4) * (header.sampling[i] & 15);
    const bool means_only = header.progressive() && means(i);
    const size_t part = size_t(means_only ? 16 : DCTSIZE2 * 17);  // 16 bits each, and one for whether it is known
    bits += part * size_t(std::max(own, 1)) / size_t(header.most_across() * header.most_down()) + 1;
  }
  return size_t(header.height + 64) * size_t(header.width + 64) / DCTSIZE2 * bits / 8;
}

}  // namespace

std::unique_ptr<JpegReader> libjpeg_reader(bool huffman) { return std::make_unique<LibjpegReader>(huffman); }

size_t jpeg_held_bytes(const Header& header, int denominator) {
  return coefficient_bytes(header, [&](int i) {  // at an eighth, the others are shrunk less
    const int across = header.sampling[i] >> 4, down = header.sampling[i] & 15;
    return denominator == 8 && (across * 2 > header.most_across() || down * 2 > header.most_down());
  });
}

size_t jpeg_held_bytes(const Header& header, const JpegReader::Denominators& denominators) {
  return coefficient_bytes(header, [&](int i) { return denominators[size_t(i)] == 8; });
}

}  // namespace fastfeed
