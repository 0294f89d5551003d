// Python bindings of random numbers, permutations and windows.
#include "bindings.h"
#include "draws.h"
#include "window_steps.h"

namespace fastfeed {
namespace {

using Ids = nb::ndarray<const int64_t, nb::shape<-1>, nb::c_contig, nb::device::cpu>;
using Keys = nb::ndarray<const uint64_t, nb::shape<kRounds>, nb::c_contig, nb::device::cpu>;
using Drawn = nb::ndarray<double, nb::shape<-1, -1>, nb::c_contig, nb::device::cpu>;
using Permuted = nb::ndarray<int64_t, nb::shape<-1>, nb::c_contig, nb::device::cpu>;

constexpr size_t kFew = 4096;  // numbers that take less time than giving the GIL away and getting it back

void draw(uint64_t seed, uint32_t epoch, Ids ids, uint32_t slot, Drawn out) {
  same_length(ids.shape(0), out.shape(0), "out", "id");
  const auto fill = [&] { uniform(seed, epoch, ids.data(), ids.shape(0), slot, out.shape(1), out.data()); };
  if (out.size() <= kFew) return fill();
  const GilRelease release;
  fill();
}

void permute_all(Ids values, uint64_t size, uint64_t a, uint64_t b, Keys keys, bool inverse, Permuted out) {
  same_length(values.shape(0), out.shape(0), "out", "value");
  if (!a || !b || a > (uint64_t(1) << 32) || b > (uint64_t(1) << 32) || !size || size > a * b)
    throw std::invalid_argument("sides must be in [1, 2**32], and their product at least the size");
  if (!permute(values.data(), values.shape(0), size, a, b, keys.data(), inverse, out.data()))
    throw std::out_of_range("a value is not in [0, size)");
}

using Given = nb::ndarray<const double, nb::shape<-1, -1>, nb::c_contig, nb::device::cpu>;
using GivenSizes = nb::ndarray<const int64_t, nb::shape<-1, 2>, nb::c_contig, nb::device::cpu>;
using GivenFlips = nb::ndarray<const bool, nb::shape<-1, 2>, nb::c_contig, nb::device::cpu>;
using NewBoxes = nb::ndarray<double, nb::shape<-1, 4>, nb::c_contig, nb::device::cpu>;
using NewSizes = nb::ndarray<int64_t, nb::shape<-1, 2>, nb::c_contig, nb::device::cpu>;
using NewFlips = nb::ndarray<bool, nb::shape<-1, 2>, nb::c_contig, nb::device::cpu>;

void fold_all(NewBoxes boxes, NewFlips flips, NewSizes now, Given box, GivenFlips flip, GivenSizes size) {
  const size_t n = boxes.shape(0);
  for (size_t got : {flips.shape(0), now.shape(0), box.shape(0), flip.shape(0), size.shape(0)})
    same_length(n, got, "an argument", "window");
  same_length(4, box.shape(1), "box", "number of a box");
  fold(boxes.data(), flips.data(), now.data(), box.data(), flip.data(), size.data(), n);
}

void crop_all(Given u, Given ratios, GivenSizes sizes, double least_area, double most_area, double least_ratio,
              double most_ratio, NewBoxes boxes) {
  const size_t n = boxes.shape(0);
  for (size_t got : {u.shape(0), ratios.shape(0), sizes.shape(0)}) same_length(n, got, "an argument", "box");
  same_length(22, u.shape(1), "u", "draw");
  same_length(10, ratios.shape(1), "ratios", "trial");
  resized_crops(u.data(), ratios.data(), sizes.data(), {least_area, most_area, least_ratio, most_ratio}, boxes.data(), n);
}

}  // namespace

void bind_draws(nb::module_& m) {
  m.def("uniform", &draw, nb::arg("seed"), nb::arg("epoch"), nb::arg("ids"), nb::arg("slot"), nb::arg("out").noconvert());
  m.def("permute", &permute_all, nb::arg("values").noconvert(), nb::arg("size"), nb::arg("a"), nb::arg("b"),
        nb::arg("keys").noconvert(), nb::arg("inverse"), nb::arg("out").noconvert());
  m.def("fold", &fold_all, nb::arg("boxes").noconvert(), nb::arg("flips").noconvert(), nb::arg("now").noconvert(),
        nb::arg("box"), nb::arg("flip"), nb::arg("size"));
  m.def("resized_crops", &crop_all, nb::arg("u"), nb::arg("ratios"), nb::arg("sizes"), nb::arg("least_area"),
        nb::arg("most_area"), nb::arg("least_ratio"), nb::arg("most_ratio"), nb::arg("boxes").noconvert());
}

}  // namespace fastfeed
