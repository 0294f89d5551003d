#include "jpeg_source.h"

#include <cstring>

#include "bits.h"
#include "jpeg_errors.h"

namespace fastfeed {
namespace {

// The next marker at or behind `at` that ends a scan's data: neither a stuffed 0xFF nor a restart. `end`: none.
const uint8_t* next_marker(const uint8_t* at, const uint8_t* end) {
  while (end - at >= 2) {
    at = static_cast<const uint8_t*>(std::memchr(at, 0xFF, size_t(end - at - 1)));
    if (!at) break;
    const uint8_t code = at[1];
    if (code != 0x00 && code != 0xFF && !(code >= JPEG_RST0 && code <= JPEG_RST0 + 7)) return at;
    at += code == 0xFF ? 1 : 2;
  }
  return end;
}

// A scan of one component that brings no means, from the bytes behind its marker's length; its component's number, or -1.
int only_details(const uint8_t* body, size_t size) {
  constexpr size_t kOne = 6;  // number of components, component, tables, first and last coefficient, positions of bits
  return size == kOne && body[0] == 1 && body[3] > 0 ? body[1] : -1;
}

}  // namespace

void JpegSource::attach(j_decompress_ptr info) {
  manager_.init_source = nothing;
  manager_.fill_input_buffer = fill;
  manager_.skip_input_data = skip;
  manager_.resync_to_restart = jpeg_resync_to_restart;
  manager_.term_source = nothing;
  manager_.owner = this;
  info->src = &manager_;
}

void JpegSource::open(const uint8_t* data, size_t size) {
  end_ = data + size;
  pieces_.clear();
  next_ = 0;
  hand_over({data, end_});
}

void JpegSource::close() {
  end_ = nullptr;
  pieces_.clear();
  next_ = 0;
  hand_over({nullptr, nullptr});
}

void JpegSource::leave_out_scans(const jpeg_decompress_struct& info) {
  constexpr int kEndOfImage = 0xD9, kStartOfScan = 0xDA, kStartOfImage = 0xD8, kTemporary = 0x01;
  bool means_only[256] = {}, any = false;
  for (int i = 0; i < info.num_components; ++i) {
    means_only[info.comp_info[i].component_id & 0xFF] = shrunk_size(info.comp_info[i]) == 1;
    any |= shrunk_size(info.comp_info[i]) == 1;
  }
  for (int i = 0; i < info.num_components; ++i)  // of two with the same number one may need more
    if (shrunk_size(info.comp_info[i]) != 1) means_only[info.comp_info[i].component_id & 0xFF] = false;
  if (!any) return;
  pieces_.clear();
  const uint8_t *from = manager_.next_input_byte, *at = from;
  for (;;) {
    const uint8_t* marker = next_marker(at, end_);
    if (end_ - marker < 4 || marker[1] == kEndOfImage) break;
    if (marker[1] == kStartOfImage || marker[1] == kTemporary) {  // have no length
      at = marker + 2;
      continue;
    }
    const size_t length = size_t(marker[2]) << 8 | marker[3];
    if (length < 2 || length > size_t(end_ - marker - 2)) break;
    at = marker + 2 + length;
    const int component = marker[1] == kStartOfScan ? only_details(marker + 4, length - 2) : -1;
    if (component >= 0 && means_only[component]) {
      add(from, marker);
      from = at = next_marker(at, end_);
    }
  }
  add(from, end_);
  next_ = 0;
  if (!pieces_.empty()) hand_over(pieces_[next_++]);
}

bool JpegSource::ends_properly() const {
  // Coded data never holds this marker: a 0xFF in it is followed by a 0.
  const uint8_t* at = manager_.next_input_byte;
  while (at + 1 < end_) {
    at = static_cast<const uint8_t*>(std::memchr(at, 0xFF, size_t(end_ - at - 1)));
    if (!at) return false;
    if (at[1] == JPEG_EOI) return true;
    ++at;
  }
  return false;
}

boolean JpegSource::fill(j_decompress_ptr info) {
  JpegSource& self = *static_cast<Manager*>(info->src)->owner;
  if (self.next_ == self.pieces_.size()) {
    auto* common = reinterpret_cast<j_common_ptr>(info);
    errors_of(common).status = Status::truncated;
    fail(common);
  }
  self.hand_over(self.pieces_[self.next_++]);
  return TRUE;
}

void JpegSource::skip(j_decompress_ptr info, long bytes) {
  if (bytes <= 0) return;
  jpeg_source_mgr& source = *info->src;
  while (size_t(bytes) > source.bytes_in_buffer) {
    bytes -= long(source.bytes_in_buffer);
    fill(info);
  }
  source.next_input_byte += bytes;
  source.bytes_in_buffer -= size_t(bytes);
}

void JpegSource::hand_over(Piece piece) {
  manager_.next_input_byte = piece.at;
  manager_.bytes_in_buffer = size_t(piece.end - piece.at);
}

void JpegSource::add(const uint8_t* at, const uint8_t* end) {
  if (at != end) pieces_.push_back({at, end});
}

}  // namespace fastfeed
