// Python bindings of random numbers and permutations.
#include "bindings.h"
#include "draws.h"

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
  const nb::gil_scoped_release release;
  fill();
}

void permute_all(Ids values, uint64_t size, uint64_t a, uint64_t b, Keys keys, bool inverse, Permuted out) {
  same_length(values.shape(0), out.shape(0), "out", "value");
  if (!a || !b || a > (uint64_t(1) << 32) || b > (uint64_t(1) << 32) || !size || size > a * b)
    throw std::invalid_argument("sides must be in [1, 2**32], and their product at least the size");
  if (!permute(values.data(), values.shape(0), size, a, b, keys.data(), inverse, out.data()))
    throw std::out_of_range("a value is not in [0, size)");
}

}  // namespace

void bind_draws(nb::module_& m) {
  m.def("uniform", &draw, nb::arg("seed"), nb::arg("epoch"), nb::arg("ids"), nb::arg("slot"), nb::arg("out").noconvert());
  m.def("permute", &permute_all, nb::arg("values").noconvert(), nb::arg("size"), nb::arg("a"), nb::arg("b"),
        nb::arg("keys").noconvert(), nb::arg("inverse"), nb::arg("out").noconvert());
}

}  // namespace fastfeed
