#include "reader.h"

#include <algorithm>
#include <csetjmp>
#include <cstdio>
#include <cstring>
#include <vector>

#include <jpeglib.h>
#include <jerror.h>

#include "entropy.h"
#include "progressive.h"

namespace fastfeed {
namespace {

// Of a progressive file: each scan is a pass over all blocks, however few its bytes. Encoders write about ten.
constexpr int kMaxScans = 500, kAlwaysScans = 32;
constexpr int64_t kScannedPixels = int64_t(4) << 30;
constexpr int kRows = 8;  // rows per call

struct Errors {
  jpeg_error_mgr base;
  jpeg_progress_mgr progress;
  std::jmp_buf jump;
  Status status;
  bool damaged, gave_up;
  Progressive* progressive;  // takes over before the first scan is read; null: none
  void* (*allocate)(j_common_ptr, int, size_t);
};

// libjpeg calls these through C; they leave by longjmp, so nothing on the way may need a destructor.
[[noreturn]] void fail(j_common_ptr info) {
  auto* errors = reinterpret_cast<Errors*>(info->err);
  if (errors->status == Status::ok) {
    switch (info->err->msg_code) {
      case JERR_BAD_PRECISION:
      case JERR_SOF_UNSUPPORTED:
      case JERR_COMPONENT_COUNT:
      case JERR_CONVERSION_NOTIMPL:
      case JERR_CCIR601_NOTIMPL:
      case JERR_FRACT_SAMPLE_NOTIMPL:
      case JERR_ARITH_NOTIMPL:
      case JERR_NOT_COMPILED:
        errors->status = Status::unsupported_format;
        break;
      case JERR_INPUT_EOF:
        errors->status = Status::truncated;
        break;
      case JERR_OUT_OF_MEMORY:
      case JERR_IMAGE_TOO_BIG:
        errors->status = Status::bomb;
        break;
      default:
        errors->status = Status::corrupt;
    }
  }
  std::longjmp(errors->jump, 1);
}

[[noreturn]] void give_up(j_common_ptr info) {
  auto* errors = reinterpret_cast<Errors*>(info->err);
  errors->gave_up = true;
  errors->status = Status::corrupt;
  std::longjmp(errors->jump, 1);
}

void warn(j_common_ptr info, int level) {
  if (level >= 0) return;  // traces
  switch (info->err->msg_code) {
    case JWRN_EXTRANEOUS_DATA:  // what many cameras and editors write
    case JWRN_ADOBE_XFORM:
    case JWRN_BOGUS_ICC:
    case JWRN_NOT_SEQUENTIAL:  // an irregular scan header: the pixels are right
    case JWRN_JFIF_MAJOR:
    case JWRN_TOO_MUCH_DATA:
      return;
    default:
      reinterpret_cast<Errors*>(info->err)->damaged = true;
  }
}

// Called repeatedly, first between a header and its data.
void progress(j_common_ptr info) {
  if (!info->is_decompressor) return;
  auto* decompress = reinterpret_cast<j_decompress_ptr>(info);
  auto* errors = reinterpret_cast<Errors*>(info->err);
  if (errors->progressive) errors->progressive->attach(decompress, give_up);
  errors->progressive = nullptr;
  const int64_t pixels = int64_t(decompress->image_height) * decompress->image_width;
  const int64_t most = std::max<int64_t>(kAlwaysScans, kScannedPixels / pixels);
  if (decompress->input_scan_number > std::min<int64_t>(kMaxScans, most)) {
    errors->status = Status::bomb;
    fail(info);
  }
}

// libjpeg keeps tables for the next image, which abbreviated streams need. Here no image may depend on the one before,
// so tables are freed with the image.
void* allocate(j_common_ptr info, int, size_t bytes) {
  return reinterpret_cast<Errors*>(info->err)->allocate(info, JPOOL_IMAGE, bytes);
}

void nothing(j_decompress_ptr) {}
void silent(j_common_ptr) {}

boolean no_more(j_decompress_ptr info) {
  auto* errors = reinterpret_cast<Errors*>(info->err);
  errors->status = Status::truncated;
  fail(reinterpret_cast<j_common_ptr>(info));
}

void skip(j_decompress_ptr info, long bytes) {
  if (bytes <= 0) return;
  if (size_t(bytes) > info->src->bytes_in_buffer) {
    no_more(info);
  }
  info->src->next_input_byte += bytes;
  info->src->bytes_in_buffer -= size_t(bytes);
}

// An end-of-image marker anywhere behind `at`. Coded data never holds one: a 0xFF in it is followed by a 0.
bool ends_properly(const uint8_t* at, const uint8_t* end) {
  while (at + 1 < end) {
    at = static_cast<const uint8_t*>(std::memchr(at, 0xFF, size_t(end - at - 1)));
    if (!at) return false;
    if (at[1] == 0xD9) return true;
    ++at;
  }
  return false;
}

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
  LibjpegReader() {
    std::memset(&info_, 0, sizeof info_);
    info_.err = jpeg_std_error(&errors_.base);
    errors_.base.error_exit = fail;
    errors_.base.emit_message = warn;
    errors_.base.output_message = silent;
    errors_.status = Status::ok;
    if (setjmp(errors_.jump)) {
      broken_ = true;
      return;
    }
    jpeg_create_decompress(&info_);
    info_.mem->max_memory_to_use = 0;  // ignores JPEGMEM in the environment: limits are admit()'s and Admission's
    errors_.allocate = info_.mem->alloc_small;
    info_.mem->alloc_small = allocate;
    errors_.progress.progress_monitor = progress;
    info_.progress = &errors_.progress;
    source_.init_source = nothing;
    source_.fill_input_buffer = no_more;
    source_.skip_input_data = skip;
    source_.resync_to_restart = jpeg_resync_to_restart;
    source_.term_source = nothing;
    info_.src = &source_;
  }

  ~LibjpegReader() override { jpeg_destroy_decompress(&info_); }
  LibjpegReader(const LibjpegReader&) = delete;
  LibjpegReader& operator=(const LibjpegReader&) = delete;

  Status start(const uint8_t* data, size_t size, const Header& header, const Region& region, bool plain) override {
    if (broken_) return Status::bomb;
    release();
    errors_.status = Status::ok;
    errors_.damaged = errors_.gave_up = false;
    end_ = data + size;
    Status status = open(data, size, header, region, plain);
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
        !ends_properly(source_.next_input_byte, end_))
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
    source_.next_input_byte = end_ = nullptr;
    source_.bytes_in_buffer = 0;
  }

 private:
  Status open(const uint8_t* data, size_t size, const Header& header, const Region& region, bool plain) {
    if (setjmp(errors_.jump)) return errors_.status;
    source_.next_input_byte = data;
    source_.bytes_in_buffer = size;
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
    const bool own = !plain && !info_.arith_code;
    errors_.progressive = own && info_.progressive_mode ? &progressive_ : nullptr;
    if (errors_.progressive) progressive_.prepare(&info_);
    jpeg_start_decompress(&info_);
    errors_.progressive = nullptr;
    const bool crop = crops_well(info_);
    left_ = crop ? JDIMENSION(region.left) : 0;
    JDIMENSION width = crop ? JDIMENSION(region.width) : info_.output_width;
    if (left_ > 0 || width < info_.output_width) jpeg_crop_scanline(&info_, &left_, &width);
    if (own && !header.several_scans()) entropy_.attach(&info_, left_, width, give_up);
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
  jpeg_source_mgr source_{};
  Errors errors_{};
  Entropy entropy_;
  Progressive progressive_;
  std::vector<uint8_t> rows_;
  const uint8_t* end_ = nullptr;
  JDIMENSION left_ = 0, bottom_ = 0;
  bool broken_ = false;
};

}  // namespace

std::unique_ptr<RowReader> libjpeg_reader() { return std::make_unique<LibjpegReader>(); }

size_t held_bytes(const Header& header) {
  if (!header.several_scans()) return 0;
  return size_t(header.height + 64) * size_t(header.width + 64) / 8 * 17 * header.components;  // and a bit for each
}

}  // namespace fastfeed
