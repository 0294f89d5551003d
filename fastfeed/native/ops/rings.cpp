#include "ops/rings.h"

#include <algorithm>
#include <cmath>
#include <cstring>

namespace fastfeed {
namespace {

constexpr double kHorizon = 1e-6;  // of the largest depth: what is nearer to the horizon is cut off
constexpr double kRounding = 1e-6;  // pixels by which arithmetic moves a point that is on an edge

// Sutherland and Hodgman: keep what has a distance >= 0. Edges along the cut enclose no area. True if any part is cut off.
template <class Distance>
bool cut(std::vector<Point>& ring, const Distance& distance) {
  const size_t n = ring.size();
  bool is_inside = true;
  for (const Point& point : ring) is_inside = is_inside && distance(point) >= 0;
  if (is_inside) return false;
  std::vector<Point> left;
  left.reserve(n + 4);
  for (size_t k = 0; k < n; ++k) {
    const Point &from = ring[k], &to = ring[(k + 1) % n];
    const double before = distance(from), after = distance(to);
    if (before >= 0) left.push_back(from);
    if ((before >= 0) == (after >= 0) || before == 0 || after == 0) continue;
    const double share = before / (before - after);
    left.push_back({from.x + share * (to.x - from.x), from.y + share * (to.y - from.y)});
  }
  ring.swap(left);
  return true;
}

// True if all edges of a ring run along the edges of a box, and enclose nothing or the box an even number of times.
bool has_no_area(const std::vector<Point>& ring, double top, double left, double bottom, double right) {
  const auto same = [](double a, double b) { return std::abs(a - b) <= kRounding; };
  double area = 0;
  for (size_t k = 0; k < ring.size(); ++k) {
    const Point &from = ring[k], &to = ring[(k + 1) % ring.size()];
    const bool is_upright = same(from.x, to.x) && (same(from.x, left) || same(from.x, right));
    const bool is_level = same(from.y, to.y) && (same(from.y, top) || same(from.y, bottom));
    if (!is_upright && !is_level) return false;
    area += (from.x - left) * (to.y - top) - (to.x - left) * (from.y - top);
  }
  return std::abs(area) < (bottom - top) * (right - left);  // which is twice the area
}

// The first pixel whose center is at or behind a place, in [low, high].
int first_behind(double place, int low, int high) { return int(std::clamp(std::ceil(place - 0.5), double(low), double(high))); }

}  // namespace

void cut_ring(std::vector<Point>& ring, const double* box) {
  const double top = box[0], left = box[1], bottom = top + box[2], right = left + box[3];
  bool is_cut = cut(ring, [=](const Point& point) { return point.x - left; });
  is_cut |= cut(ring, [=](const Point& point) { return right - point.x; });
  is_cut |= cut(ring, [=](const Point& point) { return point.y - top; });
  is_cut |= cut(ring, [=](const Point& point) { return bottom - point.y; });
  if (!is_cut) return;
  if (has_no_area(ring, top, left, bottom, right)) ring.clear();
  for (Point& point : ring) point = {std::clamp(point.x, left, right), std::clamp(point.y, top, bottom)};  // rounding
}

void move_ring(std::vector<Point>& ring, const RingMove& move) {
  cut_ring(ring, move.limit);
  const double* const by = move.forward;
  const auto depth = [by](const Point& point) { return by[6] * point.x + by[7] * point.y + by[8]; };
  double nearest = 0, furthest = 0;
  for (const Point& point : ring) {
    nearest = std::min(nearest, depth(point));
    furthest = std::max(furthest, depth(point));
  }
  if (furthest > 0 && (by[6] != 0 || by[7] != 0)) {
    const double least = kHorizon * furthest;
    if (nearest < least) cut(ring, [&](const Point& point) { return depth(point) - least; });
  }
  for (Point& point : ring) {
    const double scale = 1 / depth(point);
    point = {scale * (by[0] * point.x + by[1] * point.y + by[2]), scale * (by[3] * point.x + by[4] * point.y + by[5])};
  }
}

void fill_ring(const std::vector<Point>& ring, Image& out, Scratch& scratch) {
  if (ring.size() < 3) return;
  Point low = ring[0], high = ring[0];
  for (const Point& point : ring) {
    if (!std::isfinite(point.x) || !std::isfinite(point.y)) return;
    low = {std::min(low.x, point.x), std::min(low.y, point.y)};
    high = {std::max(high.x, point.x), std::max(high.y, point.y)};
  }
  const int top = first_behind(low.y, 0, out.height), bottom = first_behind(high.y, 0, out.height);
  const int left = first_behind(low.x, 0, out.width), right = first_behind(high.x, 0, out.width);
  if (top >= bottom || left >= right) return;
  Scratch::Frame frame(scratch);
  const size_t row = size_t(right - left) + 1;  // the last one takes what is crossed behind all pixels
  uint8_t* const crossed = frame.bytes(row * size_t(bottom - top));
  std::memset(crossed, 0, row * size_t(bottom - top));
  for (size_t k = 0; k < ring.size(); ++k) {
    Point from = ring[k], to = ring[(k + 1) % ring.size()];
    if (from.y > to.y) std::swap(from, to);
    const int first = first_behind(from.y, top, bottom), last = first_behind(to.y, top, bottom);
    if (first >= last) continue;
    const double slope = (to.x - from.x) / (to.y - from.y);
    for (int y = first; y < last; ++y) {
      const double x = from.x + (y + 0.5 - from.y) * slope;
      crossed[row * size_t(y - top) + size_t(first_behind(x, left, right) - left)] ^= 1;
    }
  }
  for (int y = top; y < bottom; ++y) {
    const uint8_t* const crossings = crossed + row * size_t(y - top);
    uint8_t* const to = out.at + size_t(y) * out.row() + left;
    uint8_t inside = 0;
    for (int x = 0; x < right - left; ++x) to[x] |= inside ^= crossings[x];
  }
}

}  // namespace fastfeed
