#include "jpeg/jpeg_errors.h"

#include <algorithm>
#include <cstdint>

#include <jerror.h>

#include "jpeg/bits.h"
#include "jpeg/progressive.h"

namespace fastfeed {
namespace {

// Of a progressive file: each scan is a pass over all blocks, however few its bytes. Encoders write about ten.
constexpr int kMaxScans = 500, kAlwaysScans = 32;
constexpr int64_t kScannedPixels = int64_t(4) << 30;

void warn(j_common_ptr info, int level) {
  if (level >= 0) return;  // traces
  switch (info->err->msg_code) {
    case JWRN_EXTRANEOUS_DATA:  // many cameras and editors write some between segments; within a scan, it is lost blocks
      errors_of(info).damaged |= info->err->msg_parm.i[1] >= JPEG_RST0 && info->err->msg_parm.i[1] <= JPEG_RST0 + 7;
      return;
    case JWRN_ADOBE_XFORM:
    case JWRN_BOGUS_ICC:
    case JWRN_NOT_SEQUENTIAL:  // an irregular scan header: the pixels are right
    case JWRN_JFIF_MAJOR:
    case JWRN_TOO_MUCH_DATA:
      return;
    default:
      errors_of(info).damaged = true;
  }
}

// Called for every row of blocks, first between a header and its data.
void progress(j_common_ptr info) {
  if (!info->is_decompressor) return;
  auto* decompress = reinterpret_cast<j_decompress_ptr>(info);
  JpegErrors& errors = errors_of(info);
  Progressive* const own = errors.progressive;
  errors.progressive = nullptr;  // before it may give up, so that the image is libjpeg's then
  if (own) own->attach(decompress, give_up);
  const int64_t pixels = int64_t(decompress->image_height) * decompress->image_width;
  const int64_t most = std::max<int64_t>(kAlwaysScans, kScannedPixels / pixels);
  if (is_set(errors.stop)) {
    errors.status = Status::cancelled;
    fail(info);
  }
  if (decompress->input_scan_number > std::min<int64_t>(kMaxScans, most)) {
    errors.status = Status::bomb;
    fail(info);
  }
}

// libjpeg keeps tables for the next image, which abbreviated streams need. Here no image may depend on the one before,
// so tables are freed with the image.
void* allocate(j_common_ptr info, int, size_t bytes) { return errors_of(info).allocate(info, JPOOL_IMAGE, bytes); }

void silent(j_common_ptr) {}

boolean read_restart(j_decompress_ptr info) {
  JpegErrors& errors = errors_of(reinterpret_cast<j_common_ptr>(info));
  errors.damaged |= reinterpret_cast<const MarkerReader*>(info->marker)->discarded > 0;
  return errors.read_restart(info);
}

}  // namespace

void catch_errors(j_decompress_ptr info, JpegErrors& errors) {
  info->err = jpeg_std_error(&errors.base);
  errors.base.error_exit = fail;
  errors.base.emit_message = warn;
  errors.base.output_message = silent;
  errors.status = Status::ok;
}

void watch_progress(j_decompress_ptr info, JpegErrors& errors) {
  info->mem->max_memory_to_use = 0;  // ignores JPEGMEM in the environment: limits are admit()'s and Admission's
  errors.allocate = info->mem->alloc_small;
  info->mem->alloc_small = allocate;
  errors.progress.progress_monitor = progress;
  info->progress = &errors.progress;
}

void watch_restarts(j_decompress_ptr info, JpegErrors& errors) {
  auto& reader = *reinterpret_cast<MarkerReader*>(info->marker);
  errors.read_restart = reader.read_restart;
  reader.read_restart = read_restart;
}

[[noreturn]] void fail(j_common_ptr info) {
  JpegErrors& errors = errors_of(info);
  if (errors.status == Status::ok) {
    switch (info->err->msg_code) {
      case JERR_BAD_PRECISION:
      case JERR_SOF_UNSUPPORTED:
      case JERR_COMPONENT_COUNT:
      case JERR_CONVERSION_NOTIMPL:
      case JERR_CCIR601_NOTIMPL:
      case JERR_FRACT_SAMPLE_NOTIMPL:
      case JERR_ARITH_NOTIMPL:
      case JERR_NOT_COMPILED:
        errors.status = Status::unsupported_format;
        break;
      case JERR_INPUT_EOF:
        errors.status = Status::truncated;
        break;
      case JERR_OUT_OF_MEMORY:
        errors.status = Status::no_memory;
        break;
      case JERR_IMAGE_TOO_BIG:
        errors.status = Status::bomb;
        break;
      default:
        errors.status = Status::corrupt;
    }
  }
  std::longjmp(errors.jump, 1);
}

[[noreturn]] void out_of_memory(j_common_ptr info) {
  errors_of(info).status = Status::no_memory;
  fail(info);
}

[[noreturn]] void give_up(j_common_ptr info) {
  JpegErrors& errors = errors_of(info);
  errors.gave_up = true;
  errors.status = Status::corrupt;
  std::longjmp(errors.jump, 1);
}

}  // namespace fastfeed
