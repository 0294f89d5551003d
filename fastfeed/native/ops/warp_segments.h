// Where the pixels of a warped row come from. Included for each instruction set in turn, hence no #pragma once.
#if defined(FASTFEED_WARP_SEGMENTS) == defined(HWY_TARGET_TOGGLE)
#ifdef FASTFEED_WARP_SEGMENTS
#undef FASTFEED_WARP_SEGMENTS
#else
#define FASTFEED_WARP_SEGMENTS
#endif

#include <algorithm>

#include "ops/warps.h"
#include "ops/warp_vectors.h"

HWY_BEFORE_NAMESPACE();
namespace fastfeed {
namespace HWY_NAMESPACE {
namespace {

constexpr float kReach = 0x1p21f;  // pixels
constexpr int kSegment = 256;  // columns that go through all passes together, so that they stay in L1; a power of two

// The source image, and a segment of fill.
struct Source : WarpSource {
  size_t stride;  // row(), at hand
  uint8_t fill[kSegment * 3];

  explicit Source(const WarpSource& in) : WarpSource(in), stride(in.row()) {
    memcpy(fill, border.fill, size_t(channels));
    for (int count = 1; count < kSegment; count *= 2)
      memcpy(fill + count * channels, fill, size_t(count * channels));
  }
  void fill_pixels(uint8_t* out, int count) const {
    for (; count > 0; count -= kSegment, out += kSegment * channels)
      memcpy(out, fill, size_t(std::min(count, kSegment) * channels));
  }
};

// Source coordinates along a row of the output: slope * column + base + add for x, y and the divisor.
struct Line {
  float slope[3], base[3], add[3];

  // rest: whether the columns come after the last whole group. OpenCV adds in another order there.
  Line(const float* map, int y, bool rest) {
    for (int k = 0; k < 3; ++k) {
      const float part = float(y) * map[3 * k + 1], shift = map[3 * k + 2];
      slope[k] = map[3 * k];
      base[k] = rest ? part : part + shift;
      add[k] = rest ? shift : 0.0f;
    }
  }
  template <bool kRest>
  HWY_INLINE VF at(int k, VF columns) const {
    const F f;
    const VF sum = fused(hn::Set(f, slope[k]), columns, hn::Set(f, base[k]));
    return kRest ? hn::Add(sum, hn::Set(f, add[k])) : sum;
  }
};

// A vector of output pixels that are not all inside, with a bit per lane. A pixel is inside if everything that the fast
// path reads for it belongs to the source; it touches the source if it depends on at least one source pixel.
struct Edge {
  int start;
  uint32_t inside, touched;
};

struct Segment {
  HWY_ALIGN uint32_t offsets[kSegment];                 // of the source pixel in bytes; 0 if not inside
  HWY_ALIGN int32_t left[kSegment], top[kSegment];      // column and row of the source pixel, only for edges
  HWY_ALIGN float across[kSegment], down[kSegment];     // fractions of a pixel
  HWY_ALIGN uint64_t above[kSegment], below[kSegment];  // RGB: the source pixel and its right neighbor, in both rows
  HWY_ALIGN uint32_t gray[kSegment];                    // the same four pixels of one channel
  HWY_ALIGN uint8_t padded[3 * kSegment + 4 * kGroup];  // output, where whole vectors would not fit
  Edge edges[kSegment];
  int first_edge, last_edge;  // those of [from, to), the last excluded
  int from, to;               // columns between which pixels touch the source, rounded to whole vectors
  bool any_inside;
};

// Coordinates that 32 bits can address with ease: beyond, a border repeats itself anyway.
HWY_INLINE VF within_reach(VF at) {
  const F f;
  const VF low = hn::Set(f, -kReach), high = hn::Set(f, kReach);
  return hn::IfThenElse(hn::Gt(at, low), hn::Min(at, high), low);  // low for what is not a number
}

// Finds the source pixels of columns [i, end) of the segment that starts at column `first`, and appends edges.
template <int kChannels, bool kNearest, bool kPerspective, bool kRest>
void locate(const Source& s, const Line (&lines)[2], int first, int i, int end, Segment& segment) {
  const F f;
  const I n;
  const U u;
  const int lanes = int(hn::Lanes(f));
  // Bilinear reads a pixel and its neighbors, nearest reads four bytes for three channels: no read may leave the image.
  constexpr int kColumns = kNearest ? 1 : 2, kRows = kNearest && kChannels == 1 ? 1 : 2;
  const VI least = hn::Set(n, kMiddleBits - 1 - s.margin);
  const VI right = hn::Set(n, kMiddleBits + s.width + s.margin - kColumns + 1);
  const VI bottom = hn::Set(n, kMiddleBits + s.height + s.margin - kRows + 1);
  const bool has_border = s.has_border();
  const uint32_t every = uint32_t((uint64_t(1) << lanes) - 1);
  const VF middle = hn::Set(f, kMiddle), step = hn::Set(f, float(lanes));
  const VU row_bytes = hn::Set(u, uint32_t(s.stride)), excess = hn::Set(u, (kMiddleBits - uint32_t(s.margin)) * uint32_t(s.stride + kChannels));
  const Line line = lines[kRest];  // a copy, which stays in registers
  VF columns = hn::Add(hn::Iota(f, 0), hn::Set(f, float(first + i)));
  int edges = segment.last_edge;
  for (; i < end; i += lanes, columns = hn::Add(columns, step)) {
    VF x = line.at<kRest>(0, columns), y = line.at<kRest>(1, columns);
    if constexpr (kPerspective) {
      const VF w = line.at<kRest>(2, columns);
      x = hn::Div(x, w);
      y = hn::Div(y, w);
    }
    if (has_border) {
      x = within_reach(x);
      y = within_reach(y);
    }
    const VF left = kNearest ? x : hn::Floor(x), top = kNearest ? y : hn::Floor(y);
    if constexpr (!kNearest) {
      hn::Store(hn::Sub(x, left), f, segment.across + i);
      hn::Store(hn::Sub(y, top), f, segment.down + i);
    }
    // What is out of range, infinite or not a number compares as below or above all pixels.
    const VI lefts = hn::BitCast(n, hn::Add(left, middle)), tops = hn::BitCast(n, hn::Add(top, middle));
    const VU column = hn::BitCast(u, lefts);
    const VU bytes = kChannels == 1 ? column : hn::Add(column, hn::Add(column, column));
    // Modulo 2^32, which is enough: images of at most 32,766 x 32,766 pixels are smaller.
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
      const Edge edge = {i, bits(inside), has_border ? every : bits(touched)};
      hn::Store(hn::IfThenElseZero(hn::RebindMask(u, inside), offsets), u, segment.offsets + i);
      hn::Store(hn::Sub(lefts, high), n, segment.left + i);
      hn::Store(hn::Sub(tops, high), n, segment.top + i);
      segment.edges[edges++] = edge;
    }
  }
  segment.last_edge = edges;
}

// Sets from, to and any_inside, and drops the edges before and after.
HWY_INLINE void trim(int columns, Segment& segment) {
  const int lanes = int(hn::Lanes(F())), end = (columns + lanes - 1) / lanes * lanes;
  int from = 0, to = end, first = 0, last = segment.last_edge;
  for (; first < last && segment.edges[first].start == from && !segment.edges[first].touched; ++first) from += lanes;
  for (; first < last && segment.edges[last - 1].start == to - lanes && !segment.edges[last - 1].touched; --last)
    to -= lanes;
  segment.any_inside = (last - first) * lanes < to - from;
  for (int j = first; j < last; ++j) segment.any_inside |= segment.edges[j].inside != 0;
  segment.from = from;
  segment.to = to;
  segment.first_edge = first;
  segment.last_edge = last;
}

}  // namespace
}  // namespace HWY_NAMESPACE
}  // namespace fastfeed
HWY_AFTER_NAMESPACE();

#endif
