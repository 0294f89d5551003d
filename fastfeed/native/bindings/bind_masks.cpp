// Masks from Python.
#include <algorithm>
#include <cmath>
#include <stdexcept>
#include <vector>

#include "bindings/bindings.h"
#include "batch/checks.h"
#include "ops/masks.h"
#include "ops/rings.h"

namespace fastfeed {
namespace {

using Mask = nb::ndarray<const uint8_t, nb::ndim<2>, nb::c_contig, nb::device::cpu>;
using MovedMask = nb::ndarray<uint8_t, nb::ndim<2>, nb::c_contig, nb::device::cpu>;
using Matrices = nb::ndarray<const double, nb::shape<-1, 3, 3>, nb::c_contig, nb::device::cpu>;
using Sizes = nb::ndarray<const int64_t, nb::shape<-1, 2>, nb::c_contig, nb::device::cpu>;

// of n images
using AllMatrices = nb::ndarray<const double, nb::shape<-1, -1, 3, 3>, nb::c_contig, nb::device::cpu>;
using AllSizes = nb::ndarray<const int64_t, nb::shape<-1, -1, 2>, nb::c_contig, nb::device::cpu>;
using AllBoxes = nb::ndarray<const double, nb::shape<-1, -1, 4>, nb::c_contig, nb::device::cpu>;

using Points = nb::ndarray<const float, nb::shape<-1, 2>, nb::c_contig, nb::device::cpu>;
using Ends = nb::ndarray<const int64_t, nb::ndim<1>, nb::c_contig, nb::device::cpu>;

std::vector<MaskMove> moves_of(const Mask& mask, const Matrices& back, const Sizes& sizes, const Boxes& limits) {
  same_length(back.shape(0), sizes.shape(0), "sizes", "move");
  same_length(back.shape(0), limits.shape(0), "limits", "move");
  std::vector<MaskMove> moves;
  int64_t height = int64_t(mask.shape(0)), width = int64_t(mask.shape(1));
  for (size_t k = 0; k < back.shape(0); ++k) {
    const int64_t new_height = sizes.data()[2 * k], new_width = sizes.data()[2 * k + 1];
    const auto [least, most] = std::minmax({height, width, new_height, new_width});
    if (least < 1 || most > kMostSide) throw std::invalid_argument("sides of masks must be in [1, 2^24]");
    moves.push_back({back.data() + 9 * k, limits.data() + 4 * k, int(new_height), int(new_width)});
    height = new_height, width = new_width;
  }
  return moves;
}

// A mask through all moves of its image, one after the other, into `out`.
void move_mask_all(Mask mask, Matrices back, Sizes sizes, Boxes limits, uint8_t ignore, MovedMask out) {
  const std::vector<MaskMove> moves = moves_of(mask, back, sizes, limits);
  if (moves.empty() || int64_t(out.shape(0)) != moves.back().height || int64_t(out.shape(1)) != moves.back().width)
    throw std::invalid_argument("out must be of the size after the last move");
  GilRelease release;
  Scratch scratch;
  Scratch::Frame frame(scratch);
  Image from{const_cast<uint8_t*>(mask.data()), int(mask.shape(0)), int(mask.shape(1)), 1};  // which is only read
  for (const MaskMove& move : moves) {
    Image to{out.data(), move.height, move.width, 1};
    if (&move != &moves.back()) to.at = frame.bytes(to.bytes());
    move_mask(from, move, ignore, to, scratch);
    from = to;
  }
}

void check_ends(const Ends& ends, const Points& points) {
  int64_t begin = 0;
  for (size_t k = 0; k < ends.shape(0); ++k) {
    const int64_t end = ends.data()[k];
    if (end < begin || end > int64_t(points.shape(0)))
      throw std::invalid_argument("ends must ascend to the number of points");
    begin = end;
  }
}

// Ring k of points, through all moves of its image.
void moved_ring(const Points& points, const Ends& ends, size_t k, const double* forward, const int64_t* sizes,
                const double* limits, size_t moves, std::vector<Point>& ring) {
  ring.clear();
  for (int64_t i = k ? ends.data()[k - 1] : 0; i < ends.data()[k]; ++i)
    ring.push_back({points.data()[2 * i], points.data()[2 * i + 1]});
  for (size_t move = 0; move < moves; ++move) {
    move_ring(ring, {forward + 9 * move, limits + 4 * move});
    const double canvas[] = {0, 0, double(sizes[2 * move]), double(sizes[2 * move + 1])};
    cut_ring(ring, canvas);
  }
}

// The rings of one object through all moves of their image, whose areas together become 1 in `out`.
void draw_rings(Points points, Ends ends, Matrices forward, Sizes sizes, Boxes limits, MovedMask out) {
  same_length(forward.shape(0), sizes.shape(0), "sizes", "move");
  same_length(forward.shape(0), limits.shape(0), "limits", "move");
  Image image{out.data(), int(out.shape(0)), int(out.shape(1)), 1};
  check_ends(ends, points);
  GilRelease release;
  Scratch scratch;
  std::vector<Point> ring;
  for (size_t k = 0; k < ends.shape(0); ++k) {
    moved_ring(points, ends, k, forward.data(), sizes.data(), limits.data(), forward.shape(0), ring);
    fill_ring(ring, image, scratch);
  }
}

// What is left of rings after all moves of their images `rows`: x, y of all points, and how many each ring has.
nb::tuple move_rings(Points points, Ends ends, Ends rows, AllMatrices forward, AllSizes sizes, AllBoxes limits) {
  const size_t n = forward.shape(0), moves = forward.shape(1);
  same_length(n, sizes.shape(0), "sizes", "image");
  same_length(n, limits.shape(0), "limits", "image");
  same_length(moves, sizes.shape(1), "sizes", "move");
  same_length(moves, limits.shape(1), "limits", "move");
  same_length(ends.shape(0), rows.shape(0), "rows", "ring");
  check_ends(ends, points);
  for (size_t k = 0; k < rows.shape(0); ++k)
    if (rows.data()[k] < 0 || rows.data()[k] >= int64_t(n)) throw std::invalid_argument("rows must be images");
  std::vector<float> left;
  std::vector<int64_t> lengths;
  {
    GilRelease release;
    std::vector<Point> ring;
    left.reserve(2 * points.shape(0));
    for (size_t k = 0; k < ends.shape(0); ++k) {
      const size_t first = size_t(rows.data()[k]) * moves;
      moved_ring(points, ends, k, forward.data() + 9 * first, sizes.data() + 2 * first, limits.data() + 4 * first, moves,
                 ring);
      bool is_finite = true;
      for (const Point& point : ring) is_finite = is_finite && std::isfinite(point.x) && std::isfinite(point.y);
      if (ring.size() < 3 || !is_finite) ring.clear();
      for (const Point& point : ring) left.insert(left.end(), {float(point.x), float(point.y)});
      lengths.push_back(int64_t(ring.size()));
    }
  }
  return nb::make_tuple(owned_array(std::move(left)), owned_array(std::move(lengths)));
}

}  // namespace

void bind_masks(nb::module_& m) {
  m.def("move_mask", &move_mask_all, nb::arg("mask").noconvert(), nb::arg("back").noconvert(),
        nb::arg("sizes").noconvert(), nb::arg("limits").noconvert(), nb::arg("ignore"), nb::arg("out").noconvert());
  m.def("draw_rings", &draw_rings, nb::arg("points").noconvert(), nb::arg("ends").noconvert(),
        nb::arg("forward").noconvert(), nb::arg("sizes").noconvert(), nb::arg("limits").noconvert(),
        nb::arg("out").noconvert());
  m.def("move_rings", &move_rings, nb::arg("points").noconvert(), nb::arg("ends").noconvert(),
        nb::arg("rows").noconvert(), nb::arg("forward").noconvert(), nb::arg("sizes").noconvert(),
        nb::arg("limits").noconvert());
}

}  // namespace fastfeed
