// Masks from Python.
#include <algorithm>
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

// The rings of one object through all moves of their image, whose areas together become 1 in `out`.
void draw_rings(Points points, Ends ends, Matrices forward, Sizes sizes, Boxes limits, MovedMask out) {
  same_length(forward.shape(0), sizes.shape(0), "sizes", "move");
  same_length(forward.shape(0), limits.shape(0), "limits", "move");
  Image image{out.data(), int(out.shape(0)), int(out.shape(1)), 1};
  int64_t begin = 0;
  for (size_t k = 0; k < ends.shape(0); ++k) {
    const int64_t end = ends.data()[k];
    if (end < begin || end > int64_t(points.shape(0))) throw std::invalid_argument("ends must ascend to the number of points");
    begin = end;
  }
  GilRelease release;
  Scratch scratch;
  begin = 0;
  std::vector<Point> ring;
  for (size_t k = 0; k < ends.shape(0); ++k) {
    ring.clear();
    for (; begin < ends.data()[k]; ++begin) ring.push_back({points.data()[2 * begin], points.data()[2 * begin + 1]});
    for (size_t move = 0; move < forward.shape(0); ++move) {
      move_ring(ring, {forward.data() + 9 * move, limits.data() + 4 * move});
      const double canvas[] = {0, 0, double(sizes.data()[2 * move]), double(sizes.data()[2 * move + 1])};
      cut_ring(ring, canvas);
    }
    fill_ring(ring, image, scratch);
  }
}

}  // namespace

void bind_masks(nb::module_& m) {
  m.def("move_mask", &move_mask_all, nb::arg("mask").noconvert(), nb::arg("back").noconvert(),
        nb::arg("sizes").noconvert(), nb::arg("limits").noconvert(), nb::arg("ignore"), nb::arg("out").noconvert());
  m.def("draw_rings", &draw_rings, nb::arg("points").noconvert(), nb::arg("ends").noconvert(),
        nb::arg("forward").noconvert(), nb::arg("sizes").noconvert(), nb::arg("limits").noconvert(),
        nb::arg("out").noconvert());
}

}  // namespace fastfeed
