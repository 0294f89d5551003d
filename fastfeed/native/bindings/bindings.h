// What the parts of the Python module share.
#pragma once

#include <nanobind/nanobind.h>
#include <nanobind/ndarray.h>

#include <cstdint>
#include <stdexcept>
#include <string>
#include <utility>
#include <vector>

#include "system/gil.h"

namespace fastfeed {

namespace nb = nanobind;

using Boxes = nb::ndarray<const double, nb::shape<-1, 4>, nb::c_contig, nb::device::cpu>;
using Flips = nb::ndarray<const bool, nb::shape<-1, 2>, nb::c_contig, nb::device::cpu>;
using Codes = nb::ndarray<int8_t, nb::shape<-1>, nb::c_contig, nb::device::cpu>;
using Table = nb::ndarray<int32_t, nb::shape<-1, 9>, nb::c_contig, nb::device::cpu>;

inline void same_length(size_t want, size_t got, const char* what, const char* of = "blob") {
  if (want != got) throw std::invalid_argument(std::string(what) + " must have one entry per " + of);
}

// The vector as a NumPy array, without a copy.
template <typename T>
nb::object owned_array(std::vector<T>&& values) {
  auto* kept = new std::vector<T>(std::move(values));
  const nb::capsule owner(kept, [](void* data) noexcept { delete static_cast<std::vector<T>*>(data); });
  return nb::ndarray<nb::numpy, T, nb::ndim<1>>(kept->data(), {kept->size()}, owner).cast();
}

void bind_draws(nb::module_& m);
void bind_executor(nb::module_& m);
void bind_libjpeg(nb::module_& m);
void bind_masks(nb::module_& m);
void bind_nvjpeg(nb::module_& m);
void bind_scaling(nb::module_& m);
void bind_testing(nb::module_& m);
void bind_traces(nb::module_& m);
void bind_values(nb::module_& m);

}  // namespace fastfeed
