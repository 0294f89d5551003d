// Python bindings of random numbers, permutations and windows.
#include <algorithm>

#include "bindings/bindings.h"
#include "batch/draws.h"
#include "batch/window_steps.h"

namespace fastfeed {
namespace {

using Ids = nb::ndarray<const int64_t, nb::shape<-1>, nb::c_contig, nb::device::cpu>;
using Keys = nb::ndarray<const uint64_t, nb::shape<kRounds, -1>, nb::c_contig, nb::device::cpu>;
using Numbers = nb::ndarray<const uint64_t, nb::shape<-1>, nb::c_contig, nb::device::cpu>;
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

PerValue per_value(const uint64_t* numbers, size_t count, size_t values) {
  if (count != 1) same_length(values, count, "an argument", "value");
  return {numbers, size_t(count != 1)};
}

void permute_all(Ids values, Numbers size, Numbers a, Numbers b, Keys keys, bool inverse, Permuted out) {
  const size_t n = values.shape(0);
  same_length(n, out.shape(0), "out", "value");
  const auto numbers = [n](const Numbers& of) { return per_value(of.data(), of.shape(0), n); };
  Permutation permutation{numbers(size), numbers(a), numbers(b), {}};
  for (int i = 0; i < kRounds; ++i) {
    const size_t count = keys.shape(1);
    permutation.keys[i] = per_value(keys.data() + i * count, count, n);
  }
  constexpr uint64_t kLongest = uint64_t(1) << 32;
  for (size_t i = 0; i < std::max({size.shape(0), a.shape(0), b.shape(0)}); ++i) {
    const uint64_t most = permutation.size[i], sides[2] = {permutation.a[i], permutation.b[i]};
    if (!sides[0] || !sides[1] || sides[0] > kLongest || sides[1] > kLongest || !most || most > sides[0] * sides[1])
      throw std::invalid_argument("sides must be in [1, 2**32], and their product at least the size");
  }
  const auto fill = [&] {
    if (!permute(values.data(), n, permutation, inverse, out.data()))
      throw std::out_of_range("a value is not in [0, size)");
  };
  if (n <= kFew) return fill();
  const GilRelease release;
  fill();
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
