#include "jpeg/jpeg_encoder.h"

#include <algorithm>
#include <csetjmp>
#include <cstdio>
#include <cstring>

#include <jpeglib.h>

namespace fastfeed {
namespace {

constexpr size_t kKeptBytes = size_t(8) << 20;

// libjpeg's type of a row is not const; it does not write.
struct RgbRows {
  static constexpr J_COLOR_SPACE kColors = JCS_RGB;
  const uint8_t* pixels;

  void write(j_compress_ptr info) const {
    JSAMPROW rows[8];
    const size_t row = size_t(info->image_width) * 3;
    const JDIMENSION count = std::min<JDIMENSION>(8, info->image_height - info->next_scanline);
    for (JDIMENSION i = 0; i < count; ++i)
      rows[i] = const_cast<uint8_t*>(pixels) + size_t(info->next_scanline + i) * row;
    jpeg_write_scanlines(info, rows, count);
  }
};

struct PlaneRows {
  static constexpr J_COLOR_SPACE kColors = JCS_YCbCr;
  const YccPlanes& planes;

  void write(j_compress_ptr info) const {
    JSAMPROW rows[3][2 * DCTSIZE];
    JSAMPARRAY parts[3] = {rows[0], rows[1], rows[2]};
    const JDIMENSION most = JDIMENSION(info->max_v_samp_factor * DCTSIZE);
    for (int c = 0; c < 3; ++c) {
      const YccPlanes::Plane& plane = planes.part[c];
      const int first = int(info->next_scanline) / plane.step;
      for (int y = 0; y < int(most) / plane.step; ++y)  // the last one fills the last blocks
        rows[c][y] = plane.at + plane.row * std::min(first + y, plane.height - 1);
    }
    jpeg_write_raw_data(info, parts, most);
  }
};

}  // namespace

struct JpegEncoder::Libjpeg {
  jpeg_compress_struct info;
  jpeg_error_mgr errors;
  jpeg_destination_mgr destination;
  std::jmp_buf jump;
  JHUFF_TBL dc[2], ac[2];  // the standard ones: libjpeg keeps those that it has optimized for the image before
  bool full = false, broken = false;

  // libjpeg calls these through C; they leave by longjmp, so nothing on the way may need a destructor.
  [[noreturn]] static void fail(j_common_ptr info) {
    std::longjmp(static_cast<Libjpeg*>(info->client_data)->jump, 1);
  }
  static boolean overflow(j_compress_ptr info) {
    static_cast<Libjpeg*>(info->client_data)->full = true;
    fail(reinterpret_cast<j_common_ptr>(info));
  }
  static void nothing(j_compress_ptr) {}
  static void quiet(j_common_ptr) {}
  static void no_warning(j_common_ptr, int) {}

  Libjpeg() {
    std::memset(&info, 0, sizeof info);
    std::memset(&destination, 0, sizeof destination);
    info.err = jpeg_std_error(&errors);
    errors.error_exit = fail;
    errors.output_message = quiet;
    errors.emit_message = no_warning;
    info.client_data = this;
    if (setjmp(jump)) {
      broken = true;
      return;
    }
    jpeg_create_compress(&info);
    info.mem->max_memory_to_use = 0;  // ignores JPEGMEM in the environment
    destination.init_destination = nothing;
    destination.empty_output_buffer = overflow;
    destination.term_destination = nothing;
    info.dest = &destination;
    info.input_components = 3;
    info.in_color_space = JCS_RGB;
    jpeg_set_defaults(&info);
    for (int i = 0; i < 2; ++i) dc[i] = *info.dc_huff_tbl_ptrs[i], ac[i] = *info.ac_huff_tbl_ptrs[i];
  }
  ~Libjpeg() { jpeg_destroy_compress(&info); }
  Libjpeg(const Libjpeg&) = delete;
  Libjpeg& operator=(const Libjpeg&) = delete;

  // Bytes written into [at, at + room); 0 if there was not enough room. rows(info) hands over those from
  // info.next_scanline on.
  template <class Rows>
  size_t run(int height, int width, const Coding& coding, const Rows& rows, uint8_t* at, size_t room) {
    full = false;
    if (setjmp(jump)) {
      jpeg_abort_compress(&info);
      return 0;
    }
    destination.next_output_byte = at;
    destination.free_in_buffer = room;
    info.image_height = JDIMENSION(height);
    info.image_width = JDIMENSION(width);
    info.in_color_space = rows.kColors;
    jpeg_set_defaults(&info);
    info.raw_data_in = rows.kColors == JCS_RGB ? FALSE : TRUE;
    for (int i = 0; i < 2; ++i) *info.dc_huff_tbl_ptrs[i] = dc[i], *info.ac_huff_tbl_ptrs[i] = ac[i];
    jpeg_set_quality(&info, coding.quality, TRUE);
    info.dct_method = JDCT_ISLOW;
    info.optimize_coding = coding.optimize ? TRUE : FALSE;
    info.comp_info[0].h_samp_factor = info.comp_info[0].v_samp_factor = coding.subsampled ? 2 : 1;
    jpeg_start_compress(&info, TRUE);
    while (info.next_scanline < info.image_height) rows.write(&info);
    jpeg_finish_compress(&info);
    return room - destination.free_in_buffer;
  }
};

JpegEncoder::JpegEncoder() : libjpeg_(std::make_unique<Libjpeg>()) {}
JpegEncoder::~JpegEncoder() = default;

bool JpegEncoder::write(const uint8_t* pixels, int height, int width, const Coding& coding) {
  return write(height, width, coding, RgbRows{pixels});
}

bool JpegEncoder::write(const YccPlanes& planes, const Coding& coding) {
  return write(planes.part[0].height, planes.part[0].width, coding, PlaneRows{planes});
}

template <class Rows>
bool JpegEncoder::write(int height, int width, const Coding& coding, const Rows& rows) {
  if (libjpeg_->broken) return false;
  // a photograph needs a byte per pixel at most; noise at quality 100 gets there by doubling
  const size_t guess = size_t(height) * size_t(width) + 4096;
  if (file_.size() < guess) file_ = std::vector<uint8_t>(guess);
  while (!(size_ = libjpeg_->run(height, width, coding, rows, file_.data(), file_.size()))) {
    if (!libjpeg_->full) return false;
    const size_t more = file_.size() * 2;
    release();
    file_ = std::vector<uint8_t>(more);
  }
  return true;
}

std::vector<uint8_t> JpegEncoder::take() {
  std::vector<uint8_t> file(data(), data() + size_);
  if (file_.size() > kKeptBytes) release();
  return file;
}

void JpegEncoder::release() {
  std::vector<uint8_t>().swap(file_);
  size_ = 0;
}

}  // namespace fastfeed
