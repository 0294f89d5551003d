#include "jpeg/jpeg_source.h"

#include <algorithm>
#include <cmath>
#include <cstring>
#include <functional>

#include "jpeg/bits.h"
#include "jpeg/jpeg_errors.h"

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

// A scan of one component that brings no means, but bits of its other coefficients.
struct Details {
  const uint8_t *begin, *end;  // of the whole scan, from its marker to the next one
  int component;               // its number in the file
  int first, last;             // coefficients, in the order of the file
  int bit;                     // position of the bits that it brings
  bool refines;                // coefficients whose upper bits an earlier scan has brought
};

// Calls each(details) for every such scan at or behind `at`.
template <class Each>
void scans_of_details(const uint8_t* at, const uint8_t* end, const Each& each) {
  constexpr int kEndOfImage = 0xD9, kStartOfScan = 0xDA, kStartOfImage = 0xD8, kTemporary = 0x01;
  constexpr size_t kOne = 8;  // length, number of components, component, tables, first and last coefficient, bits
  for (;;) {
    const uint8_t* marker = next_marker(at, end);
    if (end - marker < 4 || marker[1] == kEndOfImage) return;
    if (marker[1] == kStartOfImage || marker[1] == kTemporary) {  // have no length
      at = marker + 2;
      continue;
    }
    const size_t length = size_t(marker[2]) << 8 | marker[3];
    if (length < 2 || length > size_t(end - marker - 2)) return;
    at = marker + 2 + length;
    if (marker[1] != kStartOfScan || length != kOne) continue;
    const uint8_t* body = marker + 4;
    if (body[0] != 1 || !body[3] || body[4] < body[3] || body[4] >= DCTSIZE2) continue;
    at = next_marker(at, end);
    each(Details{marker, at, body[1], body[3], body[4], body[5] & 15, body[5] >> 4 != 0});
  }
}

// The root of the mean square that coefficient k of 8, in one direction, has in the result: eight pixels are shrunk to
// `size`, and 1.5 or more of these to one of the result, as a box of that length would do it (ITU T.81, A.3.3).
double weight(int k, int size) {
  constexpr double kPi = 3.14159265358979323846, kEnlarge = 1.5;
  if (!k) return std::sqrt(0.125);
  const double half = k * kPi / 16 * DCTSIZE / size * kEnlarge;
  return std::abs(std::sin(half) / half) * std::sqrt(0.5) / 2;
}

// Root mean square of levels, estimated from above. Photographs scaled to 512 pixels show 0.3 to 0.5 at this, rounding of
// 0.29 included, and keep their SSIM; at twice as much it falls by 0.001 (benchmarks/results/decode.md).
constexpr double kMostOff = 0.6;

// The square of how far pixels are off without the bits of `scan`, if each coefficient is off by half of what they can
// bring, whatever the others are.
double squared_error(const Details& scan, const JQUANT_TBL& steps, int size) {
  double weights[DCTSIZE];
  for (int k = 0; k < DCTSIZE; ++k) weights[k] = weight(k, size);
  double sum = 0;
  for (int k = scan.first; k <= scan.last; ++k) {
    const int place = kPlace[k];
    const double off = 0.5 * (1 << scan.bit) * steps.quantval[place] * weights[place / DCTSIZE] * weights[place % DCTSIZE];
    sum += off * off;
  }
  return sum;
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
  int sizes[256] = {};  // pixels to which eight of a component are shrunk, by its number
  const JQUANT_TBL* steps[256] = {};
  bool any = false;
  for (int i = 0; i < info.num_components; ++i) {  // of two with the same number one may need more
    const jpeg_component_info& part = info.comp_info[i];
    int& size = sizes[part.component_id & 0xFF];
    size = std::max(size, shrunk_size(part));
    steps[part.component_id & 0xFF] = info.quant_tbl_ptrs[part.quant_tbl_no & 3];
    any |= size < DCTSIZE;
  }
  if (!any) return;
  std::vector<Details> scans;
  scans_of_details(manager_.next_input_byte, end_, [&](const Details& scan) { scans.push_back(scan); });
  double squares[256] = {};  // by component, of its last scans, up to the first that has to be read
  const auto is_left_out = [&](const Details& scan) {
    const int size = sizes[scan.component];
    if (size == 1) return true;
    if (!scan.refines || size == 0 || size == DCTSIZE || !steps[scan.component]) squares[scan.component] = HUGE_VAL;
    else squares[scan.component] += squared_error(scan, *steps[scan.component], size);
    return squares[scan.component] <= kMostOff * kMostOff;
  };
  scans.erase(scans.begin(), std::remove_if(scans.rbegin(), scans.rend(), std::not_fn(is_left_out)).base());
  pieces_.clear();
  const uint8_t* from = manager_.next_input_byte;
  for (const Details& scan : scans) {
    add(from, scan.begin);
    from = scan.end;
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
