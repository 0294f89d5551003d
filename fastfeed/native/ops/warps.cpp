// Source coordinates are computed as OpenCV 5.0.0 computes them on x86-64 with AVX2, to the bit: in single precision
// with fused multiply-adds, in one order for whole groups of 16 columns and in another for the remaining columns. Which
// pixel is nearest depends on that order where a coordinate ends in .5, as it does for many shears and scales. Bilinear
// levels are computed in single precision, too. A fused multiply-add is always rounded correctly, whether done by an
// instruction or by software, so the bytes are the same on every processor.
#include "ops/warps.h"

#include <algorithm>
#include <cmath>
#include <cstring>

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "ops/warps.cpp"
#include <hwy/foreach_target.h>
#include <hwy/highway.h>

#include "ops/large_warps.h"
#include "ops/warp_segments.h"

HWY_BEFORE_NAMESPACE();
namespace fastfeed {
namespace HWY_NAMESPACE {
namespace {

// Calls take(i) for the columns between which pixels touch the source. Unrolled.
template <class Take>
HWY_INLINE void each_column(const Segment& segment, Take take) {
  const int to = segment.to;
  int i = segment.from;
  for (; i + 8 <= to; i += 8)
    for (int k = 0; k < 8; ++k) take(i + k);
  for (; i < to; ++i) take(i);
}

// Calls visit(i) for the columns that touch the source and are not inside.
template <class Visit>
HWY_INLINE void each_edge(const Segment& segment, Visit visit) {
  for (int j = segment.first_edge; j < segment.last_edge; ++j) {
    const Edge edge = segment.edges[j];
    for (uint32_t left = edge.touched & ~edge.inside; left; left &= left - 1)
      visit(edge.start + int(hwy::Num0BitsBelowLS1Bit_Nonzero32(left)));
  }
}

// Fills the columns that do not touch the source, in vectors that may. Branchless: which columns these are is hard to
// predict.
template <int kChannels>
void fill_outside(const Source& s, const Segment& segment, int columns, uint8_t* out) {
  const int lanes = int(hn::Lanes(F()));
  for (int j = segment.first_edge; j < segment.last_edge; ++j) {
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

// Gathers the four source pixels of each pixel.
template <int kChannels>
void take_neighbors(const Source& s, Segment& segment) {
  const uint8_t *const above = s.at, *const below = s.at + s.stride;
  if (segment.any_inside) {
    each_column(segment, [&segment, above, below](int i) {
      const uint32_t offset = segment.offsets[i];
      if constexpr (kChannels == 1) {
        uint16_t a, b;
        memcpy(&a, above + offset, 2);
        memcpy(&b, below + offset, 2);
        segment.gray[i] = uint32_t(a) | uint32_t(b) << 16;
      } else {
        // Two pixels have six bytes. The two bytes too many are those after them above, those before them below: both
        // belong to the image.
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
void warp_segment(const Source& s, const Line (&lines)[2], int first, int columns, int width, uint8_t* out, size_t room,
                  Segment& segment) {
  const int whole = std::min(columns, width / kGroup * kGroup - first);
  segment.last_edge = 0;
  locate<kChannels, kNearest, kPerspective, false>(s, lines, first, 0, whole, segment);
  locate<kChannels, kNearest, kPerspective, true>(s, lines, first, whole, columns, segment);
  trim(columns, segment);
  if (segment.from >= segment.to) return s.fill_pixels(out, columns);
  const bool direct = size_t(segment.to * kChannels + kGroup) <= room;
  uint8_t* const pixels = direct ? out : segment.padded;
  if constexpr (kNearest) {
    if (segment.any_inside) take_nearest<kChannels>(s, segment, pixels);
    each_edge(segment, [&](int i) {
      memcpy(pixels + i * kChannels, s.pixel(segment.top[i], segment.left[i]), kChannels);
    });
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

// Copies the row as part of a row of the source, as translations and shears along x allow. False if it cannot: the
// fractions matter, or rounding errors might.
template <bool kNearest>
bool copy_row(const Source& s, const float* map, int y, int width, uint8_t* out) {
  const float part = float(y) * map[1], x = part + map[2], line = float(y) * map[4] + map[5];
  const float reach = std::fabs(part) + std::fabs(map[2]) + float(width);
  if (!(reach < 1e6f && std::fabs(line) < 1e6f)) return false;
  const float shift = std::nearbyint(x), row = std::nearbyint(line);
  if constexpr (kNearest) {  // coordinates are rounded three times, each by 2^-24 of `reach` at most
    if (std::fabs(x - shift) > 0.5f - reach * 0x1p-22f) return false;
  } else {
    if (part != std::nearbyint(part) || map[2] != std::nearbyint(map[2]) || line != row) return false;
  }
  const int from = std::max(0, -int(shift)), to = std::min(width, s.width - int(shift));
  if (row < 0 || row >= float(s.height) || from >= to) {
    s.fill_pixels(out, width);
    return true;
  }
  const size_t channels = size_t(s.channels);
  s.fill_pixels(out, from);
  memcpy(out + size_t(from) * channels, s.pixel(int(row), from + int(shift)), size_t(to - from) * channels);
  s.fill_pixels(out + size_t(to) * channels, width - to);
  return true;
}

template <int kChannels, bool kNearest, bool kPerspective>
void warp_rows(const WarpSource& in, const float* map, Image& out) {
  const Source s(in);
  const bool straight = !s.has_border() && !kPerspective && map[0] == 1.0f && map[3] == 0.0f;
  Segment segment;
  for (int y = 0; y < out.height; ++y) {
    uint8_t* row = out.at + size_t(y) * out.row();
    if (straight && copy_row<kNearest>(s, map, y, out.width, row)) continue;
    const Line lines[2] = {{map, y, false}, {map, y, true}};
    for (int first = 0; first < out.width; first += kSegment) {
      uint8_t* at = row + size_t(first) * kChannels;
      warp_segment<kChannels, kNearest, kPerspective>(s, lines, first, std::min(kSegment, out.width - first), out.width,
                                                      at, size_t(out.at + out.bytes() - at), segment);
    }
  }
}

template <int kChannels, bool kPerspective>
void warp_pixels(const WarpSource& in, const float* map, bool nearest, Image& out) {
  if (nearest) return warp_rows<kChannels, true, kPerspective>(in, map, out);
  warp_rows<kChannels, false, kPerspective>(in, map, out);
}

void warp_image(const WarpSource& in, const float* map, bool nearest, bool perspective, Image& out) {
  if (in.channels == 1)
    return perspective ? warp_pixels<1, true>(in, map, nearest, out) : warp_pixels<1, false>(in, map, nearest, out);
  return perspective ? warp_pixels<3, true>(in, map, nearest, out) : warp_pixels<3, false>(in, map, nearest, out);
}

}  // namespace
}  // namespace HWY_NAMESPACE
}  // namespace fastfeed
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace fastfeed {
namespace {

HWY_EXPORT(warp_image);

constexpr int kMostCounted = 32766;  // OpenCV counts coordinates in 16 bits with a sign

// How far from the image the centers of a warp's pixels are at most, pixels; `most` where that is more, or unknown.
int reach_beyond(const Image& in, const double* m, int height, int width, int most) {
  double reach = 0;
  for (const double x : {0.5, width - 0.5})
    for (const double y : {0.5, height - 0.5}) {
      const double w = m[6] * x + m[7] * y + m[8];
      if (!(w > 0)) return most;
      const double across = (m[0] * x + m[1] * y + m[2]) / w, down = (m[3] * x + m[4] * y + m[5]) / w;
      reach = std::max({reach, -across, across - in.width, -down, down - in.height});
    }
  return int(std::min(std::ceil(reach) + 1, double(most)));
}

}  // namespace

int WarpSource::source_of(int place, int length) const {
  if (border.mode == Border::edge) return std::clamp(place, 0, length - 1);
  const int turn = border.mode == Border::symmetric, period = std::max(2 * (length - 1 + turn), 1);
  place %= period;
  if (place < 0) place += period;
  return std::min(place, period - turn - place);
}

WarpSource copy_with_border(const Image& in, const Border& border, const double* matrix, int height, int width,
                            Scratch& scratch) {
  const int longest = std::max(in.height, in.width);
  const bool drawn = border.mode != Border::constant && longest <= kMostCounted / 2;
  const int margin = drawn ? reach_beyond(in, matrix, height, width, longest / 2 + 1) : 0;
  return copy_with_margin(in, border, margin, scratch);
}

WarpSource copy_with_margin(const Image& in, const Border& border, int margin, Scratch& scratch) {
  WarpSource source(in, border);
  source.margin = margin;
  const int channels = in.channels;
  const size_t row = source.row(), side = size_t(margin) * size_t(channels);
  uint8_t* const copy = scratch.memory(size_t(in.height + 2 * margin) * row);
  source.at = copy;
  const auto at = [&](int y) { return copy + size_t(y + margin) * row; };
  for (int y = 0; y < in.height; ++y) std::memcpy(at(y) + side, in.at + size_t(y) * in.row(), in.row());
  if (!margin) return source;
  const Scratch::Frame frame(scratch);
  int* const from = reinterpret_cast<int*>(scratch.memory(size_t(2 * margin) * sizeof(int)));  // of both sides
  for (int k = 0; k < margin; ++k) {
    from[k] = source.source_of(k - margin, in.width);
    from[margin + k] = source.source_of(in.width + k, in.width);
  }
  for (int y = 0; y < in.height; ++y) {
    uint8_t *left = at(y), *right = left + side + in.row();
    for (int k = 0; k < 2 * margin; ++k) {
      uint8_t*& to = k < margin ? left : right;
      for (int c = 0; c < channels; ++c) *to++ = in.at[size_t(y) * in.row() + size_t(from[k] * channels + c)];
    }
  }
  for (int k = 1; k <= margin; ++k) {
    std::memcpy(at(-k), at(source.source_of(-k, in.height)), row);
    std::memcpy(at(in.height - 1 + k), at(source.source_of(in.height - 1 + k, in.height)), row);
  }
  return source;
}

bool is_identity(const double* m) {
  return m[0] == 1 && m[1] == 0 && m[2] == 0 && m[3] == 0 && m[4] == 1 && m[5] == 0 && m[6] == 0 && m[7] == 0 &&
         m[8] == 1;
}

void warp(const WarpSource& in, const double* m, Interpolation filter, Image& out) {
  if (std::max({in.height, in.width, out.height, out.width}) > kMostCounted) return warp_large(in, m, filter, out);
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
  HWY_DYNAMIC_DISPATCH(warp_image)(in, map, filter == Interpolation::nearest, perspective, out);
}

}  // namespace fastfeed
#endif
