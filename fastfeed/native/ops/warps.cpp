// Source coordinates are computed as OpenCV 5.0.0 computes them on x86-64 with AVX2, to the bit: in single precision with
// fused multiply-adds, in one order for whole groups of 16 columns and in another for the columns left over. Nearest
// pixels depend on that order where a coordinate ends in .5, as it does for many shears and scales. A fused multiply-add
// is correctly rounded wherever it is done, so the bytes are the same on every processor.
#include "warps.h"

#include <algorithm>
#include <cmath>
#include <cstring>

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "ops/warps.cpp"
#include <hwy/foreach_target.h>
#include <hwy/highway.h>

#include "ops/warp_vectors.h"

HWY_BEFORE_NAMESPACE();
namespace fastfeed {
namespace HWY_NAMESPACE {
namespace {

constexpr int kSegment = 256;  // columns that go through all passes before the next, and stay in L1 meanwhile

// The image, and pixels of the fill.
struct Source {
  const uint8_t* at;
  int height, width, channels;
  size_t row;
  uint8_t fill[kSegment * 3];

  Source(const Image& in, const uint8_t* color)
      : at(in.at), height(in.height), width(in.width), channels(in.channels), row(in.row()) {
    for (int i = 0; i < kSegment * channels; ++i) fill[i] = color[i % channels];
  }
  const uint8_t* pixel(int y, int x) const {
    const bool inside = y >= 0 && y < height && x >= 0 && x < width;
    return inside ? at + size_t(y) * row + size_t(x) * size_t(channels) : fill;
  }
  void fill_pixels(uint8_t* out, int count) const {
    for (; count > 0; count -= kSegment, out += kSegment * channels)
      memcpy(out, fill, size_t(std::min(count, kSegment) * channels));
  }
};

// Source coordinates along a row of the output: slope * column + base + add for x, y and the divisor.
struct Line {
  float slope[3], base[3], add[3];

  // rest: for the columns after the last whole group
  Line(const float* map, int y, bool rest) {
    for (int k = 0; k < 3; ++k) {
      const float part = float(y) * map[3 * k + 1], shift = map[3 * k + 2];
      slope[k] = map[3 * k];
      base[k] = rest ? part : part + shift;
      add[k] = rest ? shift : 0.0f;
    }
  }
  HWY_INLINE VF coordinates(int k, VF columns) const {
    const F f;
    return hn::Add(fused(hn::Set(f, slope[k]), columns, hn::Set(f, base[k])), hn::Set(f, add[k]));
  }
  HWY_INLINE float coordinate(int k, int column) const { return fused(slope[k], float(column), base[k]) + add[k]; }
};

// Of the pixels of a vector, a bit per lane: whether all that is read for it lies inside the source, and whether
// anything does.
struct Flags {
  uint32_t inside, touched;
};

struct Segment {
  HWY_ALIGN uint32_t offsets[kSegment];                        // of the first byte in the source; 0 if not inside
  HWY_ALIGN float across[kSegment], down[kSegment];            // fractions of a pixel
  HWY_ALIGN uint64_t above[kSegment], below[kSegment];         // pixels and their right neighbors
  HWY_ALIGN uint16_t gray[2 * kSegment];                       // the same of one channel, above and below in turn
  HWY_ALIGN uint8_t padded[3 * kSegment + 4 * kGroup];         // output, where there is no room to write too much
  Flags flags[kSegment];
  int from, to;  // columns that are touched, whole vectors
  bool any_inside;
};

// Where the pixels [i, end) of the segment that starts at column `first` come from.
template <int kChannels, bool kNearest, bool kPerspective>
void locate(const Source& s, const Line& line, int first, int i, int end, Segment& segment) {
  const F f;
  const U u;
  const int lanes = int(hn::Lanes(f));
  const uint32_t all = (1u << lanes) - 1;
  // Read is a pixel with its neighbors, or four bytes for the three of one: no read may end outside.
  constexpr int kColumns = kNearest ? 1 : 2, kRows = kNearest && kChannels == 1 ? 1 : 2;
  const VF right = hn::Set(f, float(s.width - kColumns)), bottom = hn::Set(f, float(s.height - kRows));
  const VF units = hn::Set(f, kUnits);
  const VU row_bytes = hn::Set(u, uint32_t(s.row)), excess = hn::Set(u, kUnitBits * uint32_t(s.row + kChannels));
  VF columns = hn::Add(hn::Iota(f, 0), hn::Set(f, float(first + i)));
  for (; i < end; i += lanes) {
    VF x = line.coordinates(0, columns), y = line.coordinates(1, columns);
    if constexpr (kPerspective) {
      const VF w = line.coordinates(2, columns);
      x = hn::Div(x, w);
      y = hn::Div(y, w);
    }
    columns = hn::Add(columns, hn::Set(f, float(lanes)));
    const VF left = kNearest ? hn::Round(x) : hn::Floor(x), top = kNearest ? hn::Round(y) : hn::Floor(y);
    if constexpr (!kNearest) {
      hn::Store(hn::Sub(x, left), f, segment.across + i);
      hn::Store(hn::Sub(y, top), f, segment.down + i);
    }
    // In 32 bits, modulo 2^32: images of these sides have fewer bytes.
    const VU lefts = hn::BitCast(u, hn::Add(left, units)), tops = hn::BitCast(u, hn::Add(top, units));
    const VU pixels = kChannels == 1 ? lefts : hn::Add(lefts, hn::Add(lefts, lefts));
    const VU offsets = hn::Sub(hn::Add(hn::Mul(tops, row_bytes), pixels), excess);
    // Comparisons are false for what is not a number, on every processor.
    const auto inside = hn::And(hn::Ge(hn::Min(left, top), hn::Zero(f)), hn::And(hn::Le(left, right), hn::Le(top, bottom)));
    Flags& flags = segment.flags[i / lanes];
    if (HWY_LIKELY(hn::AllTrue(f, inside))) {
      flags = {all, all};
      hn::Store(offsets, u, segment.offsets + i);
    } else {
      const VF reach = hn::Set(f, kNearest ? 0.0f : -1.0f);
      const auto touched = hn::And(hn::And(hn::Ge(left, reach), hn::Le(left, hn::Set(f, float(s.width - 1)))),
                                   hn::And(hn::Ge(top, reach), hn::Le(top, hn::Set(f, float(s.height - 1)))));
      flags = {bits(inside), bits(touched)};
      hn::Store(hn::IfThenElseZero(hn::RebindMask(u, inside), offsets), u, segment.offsets + i);
    }
    segment.any_inside |= flags.inside != 0;
    if (flags.touched) {
      segment.from = std::min(segment.from, i);
      segment.to = i + lanes;
    }
  }
}

template <int kChannels>
void take_nearest(const Source& s, const Segment& segment, uint8_t* out) {
  for (int i = segment.from; i < segment.to; ++i) {
    const uint8_t* at = s.at + segment.offsets[i];
    memcpy(out + i * kChannels, at, kChannels == 1 ? 1 : 4);  // the fourth byte is overwritten by the next pixel
  }
}

template <int kChannels>
void take_bilinear(const Source& s, Segment& segment, uint8_t* out) {
  const F f;
  const U u;
  const int lanes = int(hn::Lanes(f));
  for (int i = segment.from; i < segment.to; ++i) {
    const uint8_t* at = s.at + segment.offsets[i];
    if constexpr (kChannels == 1) {
      memcpy(segment.gray + 2 * i, at, 2);
      memcpy(segment.gray + 2 * i + 1, at + s.row, 2);
    } else {  // eight bytes for six, of the lower row those that end with them: both stay inside the image
      memcpy(segment.above + i, at, 8);
      memcpy(segment.below + i, at + s.row - 2, 8);
    }
  }
  for (int i = segment.from; i < segment.to; i += lanes) {
    const VF across = hn::Load(f, segment.across + i), down = hn::Load(f, segment.down + i);
    if constexpr (kChannels == 1) {
      const VU v = hn::Load(u, reinterpret_cast<const uint32_t*>(segment.gray) + i);
      store_gray(blend(across, down, byte<0>(v), byte<1>(v), byte<2>(v), byte<3>(v)), out + i);
    } else {
      VU a, b, c, d;
      halves(segment.above + i, a, b);
      halves(segment.below + i, c, d);
      const VU red = blend(across, down, byte<0>(a), byte<3>(a), byte<2>(c), byte<1>(d));
      const VU green = blend(across, down, byte<1>(a), byte<0>(b), byte<3>(c), byte<2>(d));
      const VU blue = blend(across, down, byte<2>(a), byte<1>(b), byte<0>(d), byte<3>(d));
      store_rgb(hn::Or(red, hn::Or(hn::ShiftLeft<8>(green), hn::ShiftLeft<16>(blue))), out + 3 * i);
    }
  }
}

// A pixel that is touched, but not inside.
template <int kChannels, bool kNearest, bool kPerspective>
void take_edge(const Source& s, const Line& line, int column, uint8_t* out) {
  float x = line.coordinate(0, column), y = line.coordinate(1, column);
  if constexpr (kPerspective) {
    const float w = line.coordinate(2, column);
    x /= w;
    y /= w;
  }
  if constexpr (kNearest) {
    memcpy(out, s.pixel(int(std::nearbyint(y)), int(std::nearbyint(x))), kChannels);
  } else {
    const float left = std::floor(x), top = std::floor(y), across = x - left, down = y - top;
    const uint8_t *a = s.pixel(int(top), int(left)), *b = s.pixel(int(top), int(left) + 1);
    const uint8_t *c = s.pixel(int(top) + 1, int(left)), *d = s.pixel(int(top) + 1, int(left) + 1);
    for (int k = 0; k < kChannels; ++k) {
      const float above = fused(across, float(b[k]) - float(a[k]), float(a[k]));
      const float below = fused(across, float(d[k]) - float(c[k]), float(c[k]));
      const float level = fused(down, below - above, above) + kUnits;
      uint32_t level_bits;
      memcpy(&level_bits, &level, sizeof level);
      out[k] = uint8_t(level_bits);
    }
  }
}

// A segment of a row; `room` bytes from `out` on are the output's.
template <int kChannels, bool kNearest, bool kPerspective>
void warp_segment(const Source& s, const Line (&lines)[2], int first, int columns, uint8_t* out, size_t room,
                  Segment& segment) {
  const int lanes = int(hn::Lanes(F())), whole = std::min(columns, s.width / kGroup * kGroup - first);
  segment.from = columns;
  segment.to = 0;
  segment.any_inside = false;
  locate<kChannels, kNearest, kPerspective>(s, lines[0], first, 0, whole, segment);
  locate<kChannels, kNearest, kPerspective>(s, lines[1], first, whole, columns, segment);
  if (segment.from >= segment.to) return s.fill_pixels(out, columns);
  const int end = std::min(segment.to, columns);
  if (segment.any_inside) {
    const bool direct = size_t(segment.to * kChannels + kGroup) <= room;
    uint8_t* pixels = direct ? out : segment.padded;
    if constexpr (kNearest) {
      take_nearest<kChannels>(s, segment, pixels);
    } else {
      take_bilinear<kChannels>(s, segment, pixels);
    }
    const int start = segment.from * kChannels;
    if (!direct) memcpy(out + start, pixels + start, size_t(end * kChannels - start));
  }
  s.fill_pixels(out, segment.from);
  s.fill_pixels(out + end * kChannels, columns - end);
  const uint32_t all = (1u << lanes) - 1;
  for (int i = segment.from; i < end; i += lanes) {
    const Flags flags = segment.flags[i / lanes];
    if (HWY_LIKELY(flags.inside == all)) continue;
    for (int k = 0; k < lanes && i + k < columns; ++k) {
      if (flags.inside >> k & 1) continue;
      uint8_t* pixel = out + (i + k) * kChannels;
      if (flags.touched >> k & 1) {
        take_edge<kChannels, kNearest, kPerspective>(s, lines[i >= whole], first + i + k, pixel);
      } else {
        memcpy(pixel, s.fill, kChannels);
      }
    }
  }
}

// Rows of translations and of shears along x are parts of the source's rows. False where rounding decides.
template <bool kNearest>
bool copy_row(const Source& s, const float* map, int y, uint8_t* out) {
  const float part = float(y) * map[1], x = part + map[2], line = float(y) * map[4] + map[5];
  const float reach = std::fabs(part) + std::fabs(map[2]) + float(s.width);
  if (!(reach < 1e6f && std::fabs(line) < 1e6f)) return false;
  const float shift = std::nearbyint(x), row = std::nearbyint(line);
  if constexpr (kNearest) {  // coordinates are rounded three times, each to 2^-24 of `reach` at most
    if (std::fabs(x - shift) > 0.5f - reach * 0x1p-22f) return false;
  } else {
    if (part != std::nearbyint(part) || x != shift || line != row) return false;
  }
  const int from = std::max(0, -int(shift)), to = std::min(s.width, s.width - int(shift));
  if (row < 0 || row >= float(s.height) || from >= to) {
    s.fill_pixels(out, s.width);
    return true;
  }
  const size_t channels = size_t(s.channels);
  s.fill_pixels(out, from);
  memcpy(out + size_t(from) * channels, s.pixel(int(row), from + int(shift)), size_t(to - from) * channels);
  s.fill_pixels(out + size_t(to) * channels, s.width - to);
  return true;
}

template <int kChannels, bool kNearest, bool kPerspective>
void warp_rows(const Image& in, const float* map, const uint8_t* fill, Image& out) {
  const Source s(in, fill);
  const bool straight = !kPerspective && map[0] == 1.0f && map[3] == 0.0f;
  Segment segment;
  for (int y = 0; y < s.height; ++y) {
    uint8_t* row = out.at + size_t(y) * s.row;
    if (straight && copy_row<kNearest>(s, map, y, row)) continue;
    const Line lines[2] = {{map, y, false}, {map, y, true}};
    for (int first = 0; first < s.width; first += kSegment) {
      uint8_t* at = row + size_t(first) * kChannels;
      warp_segment<kChannels, kNearest, kPerspective>(s, lines, first, std::min(kSegment, s.width - first), at,
                                                      size_t(out.at + out.bytes() - at), segment);
    }
  }
}

template <int kChannels, bool kPerspective>
void warp_pixels(const Image& in, const float* map, bool nearest, const uint8_t* fill, Image& out) {
  if (nearest) return warp_rows<kChannels, true, kPerspective>(in, map, fill, out);
  warp_rows<kChannels, false, kPerspective>(in, map, fill, out);
}

void warp_image(const Image& in, const float* map, bool nearest, bool perspective, const uint8_t* fill, Image& out) {
  if (in.channels == 1)
    return perspective ? warp_pixels<1, true>(in, map, nearest, fill, out)
                       : warp_pixels<1, false>(in, map, nearest, fill, out);
  return perspective ? warp_pixels<3, true>(in, map, nearest, fill, out)
                     : warp_pixels<3, false>(in, map, nearest, fill, out);
}

}  // namespace
}  // namespace HWY_NAMESPACE
}  // namespace fastfeed
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace fastfeed {
namespace {

HWY_EXPORT(warp_image);

}  // namespace

bool is_identity(const double* m) {
  return m[0] == 1 && m[1] == 0 && m[2] == 0 && m[3] == 0 && m[4] == 1 && m[5] == 0 && m[6] == 0 && m[7] == 0 &&
         m[8] == 1;
}

void warp(const Image& in, const double* m, Interpolation filter, const uint8_t* fill, Image& out, Scratch&) {
  if (is_identity(m)) {
    memcpy(out.at, in.at, in.bytes());
    return;
  }
  const bool perspective = !(m[6] == 0 && m[7] == 0);
  float map[9] = {};  // from pixel centers at whole numbers, as OpenCV counts
  if (perspective) {
    const double last = m[8] + (m[6] + m[7]) / 2, bottom[3] = {m[6], m[7], last};
    for (int k = 0; k < 2; ++k) {
      const double ahead[3] = {m[3 * k], m[3 * k + 1], m[3 * k + 2] + (m[3 * k] + m[3 * k + 1]) / 2};
      for (int j = 0; j < 3; ++j) map[3 * k + j] = float(ahead[j] - bottom[j] / 2);
    }
    for (int j = 0; j < 3; ++j) map[6 + j] = float(bottom[j]);
  } else {
    for (int k = 0; k < 2; ++k) {
      const double a = m[3 * k], b = m[3 * k + 1];
      map[3 * k] = float(a / m[8]);
      map[3 * k + 1] = float(b / m[8]);
      map[3 * k + 2] = float(m[3 * k + 2] / m[8] + (a + b) / m[8] / 2 - 0.5);
    }
  }
  HWY_DYNAMIC_DISPATCH(warp_image)(in, map, filter == Interpolation::nearest, perspective, fill, out);
}

}  // namespace fastfeed
#endif
