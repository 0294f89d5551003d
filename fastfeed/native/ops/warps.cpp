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

#include "large_warps.h"
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
};

template <bool kRest>
struct Axis {
  VF slope, base, add;

  HWY_INLINE Axis(const Line& line, int k)
      : slope(hn::Set(F(), line.slope[k])), base(hn::Set(F(), line.base[k])), add(hn::Set(F(), line.add[k])) {}
  HWY_INLINE VF at(VF columns) const {
    const VF sum = fused(slope, columns, base);
    return kRest ? hn::Add(sum, add) : sum;
  }
};

// A vector of which not every pixel lies inside with all that is read for it, a bit per lane: which do, and which touch
// the source.
struct Edge {
  int start;
  uint32_t inside, touched;
};

struct Segment {
  HWY_ALIGN uint32_t offsets[kSegment];                 // of the first byte in the source; 0 if not inside
  HWY_ALIGN int32_t left[kSegment], top[kSegment];       // the pixel's column and row, in vectors on the edge
  HWY_ALIGN float across[kSegment], down[kSegment];     // fractions of a pixel
  HWY_ALIGN uint64_t above[kSegment], below[kSegment];  // pixels and their right neighbors
  HWY_ALIGN uint32_t gray[kSegment];                    // the same of one channel, above and below
  HWY_ALIGN uint8_t padded[3 * kSegment + 4 * kGroup];  // output, where there is no room to write too much
  Edge edges[kSegment];
  int first_edge, edge_count;
  int from, to;  // columns that touch the source, whole vectors
  bool any_inside;
};

// Where the pixels [i, end) of the segment that starts at column `first` come from.
template <int kChannels, bool kNearest, bool kPerspective, bool kRest>
void locate(const Source& s, const Line& line, int first, int i, int end, Segment& segment) {
  const F f;
  const I n;
  const U u;
  const int lanes = int(hn::Lanes(f));
  // Read is a pixel with its neighbors, or four bytes for the three of one: no read may end outside.
  constexpr int kColumns = kNearest ? 1 : 2, kRows = kNearest && kChannels == 1 ? 1 : 2;
  const VI least = hn::Set(n, kMiddleBits - 1), right = hn::Set(n, kMiddleBits + s.width - kColumns + 1);
  const VI bottom = hn::Set(n, kMiddleBits + s.height - kRows + 1);
  const VF middle = hn::Set(f, kMiddle), step = hn::Set(f, float(lanes));
  const VU row_bytes = hn::Set(u, uint32_t(s.row)), excess = hn::Set(u, kMiddleBits * uint32_t(s.row + kChannels));
  const Axis<kRest> xs(line, 0), ys(line, 1), ws(line, 2);
  VF columns = hn::Add(hn::Iota(f, 0), hn::Set(f, float(first + i)));
  int edges = segment.edge_count;
  for (; i < end; i += lanes, columns = hn::Add(columns, step)) {
    VF x = xs.at(columns), y = ys.at(columns);
    if constexpr (kPerspective) {
      const VF w = ws.at(columns);
      x = hn::Div(x, w);
      y = hn::Div(y, w);
    }
    const VF left = kNearest ? x : hn::Floor(x), top = kNearest ? y : hn::Floor(y);
    if constexpr (!kNearest) {
      hn::Store(hn::Sub(x, left), f, segment.across + i);
      hn::Store(hn::Sub(y, top), f, segment.down + i);
    }
    // Far away, infinite and not a number are below or above all pixels, too.
    const VI lefts = hn::BitCast(n, hn::Add(left, middle)), tops = hn::BitCast(n, hn::Add(top, middle));
    const VU column = hn::BitCast(u, lefts);
    const VU bytes = kChannels == 1 ? column : hn::Add(column, hn::Add(column, column));
    // Modulo 2^32: images of these sides have fewer bytes.
    const VU offsets = hn::Sub(hn::Add(hn::Mul(hn::BitCast(u, tops), row_bytes), bytes), excess);
    const auto inside =
        hn::And(hn::Gt(hn::Min(lefts, tops), least), hn::And(hn::Lt(lefts, right), hn::Lt(tops, bottom)));
    if (HWY_LIKELY(hn::AllTrue(n, inside))) {
      hn::Store(offsets, u, segment.offsets + i);
    } else {
      const VI low = hn::Set(n, kMiddleBits - (kNearest ? 1 : 2)), high = hn::Set(n, kMiddleBits);
      const auto touched = hn::And(hn::Gt(hn::Min(lefts, tops), low),
                                   hn::And(hn::Lt(lefts, hn::Add(high, hn::Set(n, s.width))),
                                           hn::Lt(tops, hn::Add(high, hn::Set(n, s.height)))));
      const Edge edge = {i, bits(inside), bits(touched)};
      hn::Store(hn::IfThenElseZero(hn::RebindMask(u, inside), offsets), u, segment.offsets + i);
      hn::Store(hn::Sub(lefts, high), n, segment.left + i);
      hn::Store(hn::Sub(tops, high), n, segment.top + i);
      segment.edges[edges++] = edge;
    }
  }
  segment.edge_count = edges;
}

// Finds the columns that touch the source, and drops from the edges the vectors before and after them.
HWY_INLINE void trim(int columns, Segment& segment) {
  const int lanes = int(hn::Lanes(F())), end = (columns + lanes - 1) / lanes * lanes;
  int from = 0, to = end, first = 0, last = segment.edge_count;
  for (; first < last && segment.edges[first].start == from && !segment.edges[first].touched; ++first) from += lanes;
  for (; first < last && segment.edges[last - 1].start == to - lanes && !segment.edges[last - 1].touched; --last)
    to -= lanes;
  segment.any_inside = (last - first) * lanes < to - from;
  for (int j = first; j < last; ++j) segment.any_inside |= segment.edges[j].inside != 0;
  segment.from = from;
  segment.to = to;
  segment.first_edge = first;
  segment.edge_count = last;
}

// take(i) for all columns that touch the source, several at once.
template <class Take>
HWY_INLINE void each_column(const Segment& segment, Take take) {
  const int to = segment.to;
  int i = segment.from;
  for (; i + 8 <= to; i += 8)
    for (int k = 0; k < 8; ++k) take(i + k);
  for (; i < to; ++i) take(i);
}

// visit(i) for the columns that touch the source and are not inside.
template <class Visit>
HWY_INLINE void each_edge(const Segment& segment, Visit visit) {
  for (int j = segment.first_edge; j < segment.edge_count; ++j) {
    const Edge edge = segment.edges[j];
    for (uint32_t left = edge.touched & ~edge.inside; left; left &= left - 1)
      visit(edge.start + int(hwy::Num0BitsBelowLS1Bit_Nonzero32(left)));
  }
}

// Fills the columns that do not touch the source, between others that do. Without branches: no telling which they are.
template <int kChannels>
void fill_outside(const Source& s, const Segment& segment, int columns, uint8_t* out) {
  const int lanes = int(hn::Lanes(F()));
  for (int j = segment.first_edge; j < segment.edge_count; ++j) {
    const Edge edge = segment.edges[j];
    const int count = std::min(lanes, columns - edge.start);
    uint8_t* at = out + edge.start * kChannels;
    for (int k = 0; k < count; ++k, at += kChannels) {
      const uint8_t mask = uint8_t(-int(edge.touched >> k & 1));
      for (int c = 0; c < kChannels; ++c) at[c] = uint8_t((at[c] & mask) | (s.fill[c] & ~mask));
    }
  }
}

template <int kChannels>
void take_nearest(const Source& s, const Segment& segment, uint8_t* out) {
  const uint8_t* const in = s.at;
  const uint32_t* const offsets = segment.offsets;
  // Of four bytes, the last is overwritten by the next pixel.
  each_column(segment, [=](int i) { memcpy(out + i * kChannels, in + offsets[i], kChannels == 1 ? 1 : 4); });
}

// The pixels around those of the segment.
template <int kChannels>
void take_neighbors(const Source& s, Segment& segment) {
  const uint8_t *const above = s.at, *const below = s.at + s.row;
  if (segment.any_inside) {
    each_column(segment, [&segment, above, below](int i) {
      const uint32_t offset = segment.offsets[i];
      if constexpr (kChannels == 1) {
        uint16_t a, b;
        memcpy(&a, above + offset, 2);
        memcpy(&b, below + offset, 2);
        segment.gray[i] = uint32_t(a) | uint32_t(b) << 16;
      } else {  // eight bytes for six, of the lower row those that end with them: both stay inside the image
        memcpy(segment.above + i, above + offset, 8);
        memcpy(segment.below + i, below + offset - 2, 8);
      }
    });
  }
  each_edge(segment, [&](int i) {
    const int x = segment.left[i], y = segment.top[i];
    const uint8_t *a = s.pixel(y, x), *b = s.pixel(y, x + 1), *c = s.pixel(y + 1, x), *d = s.pixel(y + 1, x + 1);
    if constexpr (kChannels == 1) {
      segment.gray[i] = uint32_t(*a) | uint32_t(*b) << 8 | uint32_t(*c) << 16 | uint32_t(*d) << 24;
    } else {
      uint8_t* at = reinterpret_cast<uint8_t*>(segment.above + i);
      memcpy(at, a, 3);
      memcpy(at + 3, b, 3);
      at = reinterpret_cast<uint8_t*>(segment.below + i);
      memcpy(at + 2, c, 3);
      memcpy(at + 5, d, 3);
    }
  });
}

template <int kChannels>
void take_bilinear(const Segment& segment, uint8_t* out) {
  const F f;
  const U u;
  const int lanes = int(hn::Lanes(f));
  for (int i = segment.from, to = segment.to; i < to; i += lanes) {
    const VF across = hn::Load(f, segment.across + i), down = hn::Load(f, segment.down + i);
    if constexpr (kChannels == 1) {
      const VU v = hn::Load(u, segment.gray + i);
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

// A segment of a row; `room` bytes from `out` on are the output's.
template <int kChannels, bool kNearest, bool kPerspective>
void warp_segment(const Source& s, const Line (&lines)[2], int first, int columns, uint8_t* out, size_t room,
                  Segment& segment) {
  const int whole = std::min(columns, s.width / kGroup * kGroup - first);
  segment.edge_count = 0;
  locate<kChannels, kNearest, kPerspective, false>(s, lines[0], first, 0, whole, segment);
  locate<kChannels, kNearest, kPerspective, true>(s, lines[1], first, whole, columns, segment);
  trim(columns, segment);
  if (segment.from >= segment.to) return s.fill_pixels(out, columns);
  const bool direct = size_t(segment.to * kChannels + kGroup) <= room;
  uint8_t* const pixels = direct ? out : segment.padded;
  if constexpr (kNearest) {
    if (segment.any_inside) take_nearest<kChannels>(s, segment, pixels);
    each_edge(segment, [&](int i) { memcpy(pixels + i * kChannels, s.pixel(segment.top[i], segment.left[i]), kChannels); });
  } else {
    take_neighbors<kChannels>(s, segment);
    take_bilinear<kChannels>(segment, pixels);
  }
  const int end = std::min(segment.to, columns), start = segment.from * kChannels;
  if (!direct) memcpy(out + start, pixels + start, size_t(end * kChannels - start));
  s.fill_pixels(out, segment.from);
  s.fill_pixels(out + end * kChannels, columns - end);
  fill_outside<kChannels>(s, segment, columns, out);
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

constexpr int kMostSide = 32766;  // OpenCV counts coordinates in 16 bits with a sign

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
  if (std::max(in.height, in.width) > kMostSide) return warp_large(in, m, filter, fill, out);
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
