// The submodule `testing`: what the tests and benchmarks of the native extension call, and the package does not.
#include <cstring>
#include <optional>
#include <stdexcept>
#include <string>

#include <nanobind/stl/optional.h>
#include <nanobind/stl/string.h>

#include "bindings/bindings.h"
#include "pixels/tables.h"
#include "system/instruction_sets.h"

namespace fastfeed {
namespace {

using Image = nb::ndarray<const uint8_t, nb::ndim<3>, nb::c_contig, nb::device::cpu>;
using Changed = nb::ndarray<uint8_t, nb::ndim<3>, nb::c_contig, nb::device::cpu>;
using Bytes = nb::ndarray<const uint8_t, nb::c_contig, nb::device::cpu>;
using Entries = nb::ndarray<nb::ro, nb::c_contig, nb::device::cpu>;
using Numbers = nb::ndarray<nb::c_contig, nb::device::cpu>;
using Counts = nb::ndarray<uint32_t, nb::shape<-1, 256>, nb::c_contig, nb::device::cpu>;

int channels_of(const Image& image) {
  const size_t channels = image.shape(2);
  if (channels != 1 && channels != 3) throw std::invalid_argument("image must be uint8 (height, width, 1 or 3)");
  return int(channels);
}

void look_up_all(Image image, Bytes table, Changed out) {
  const size_t channels = size_t(channels_of(image)), of = table.ndim() == 2 ? table.shape(1) : 1;
  if (table.ndim() < 1 || table.ndim() > 2 || table.shape(0) != 256 || (of != 1 && of != channels))
    throw std::invalid_argument("table must be uint8 (256,) or (256, channels)");
  if (out.shape(0) != image.shape(0) || out.shape(1) != image.shape(1) || out.shape(2) != channels)
    throw std::invalid_argument("out must be of the image's shape");
  uint8_t tables[3][256];
  for (size_t v = 0; v < 256; ++v)
    for (size_t c = 0; c < of; ++c) tables[c][v] = table.data()[v * of + c];
  GilRelease release;
  look_up(image.data(), out.data(), image.size(), tables, int(of));
}

void convert_all(Image image, Entries table, Numbers out, bool planar) {
  const size_t channels = size_t(channels_of(image)), height = image.shape(0), width = image.shape(1);
  const size_t size = out.itemsize();
  if ((size != 2 && size != 4) || table.dtype() != out.dtype())
    throw std::invalid_argument("table and out must be of one dtype of 2 or 4 bytes");
  if (table.ndim() != 2 || table.shape(0) != 256 || table.shape(1) != channels)
    throw std::invalid_argument("table must be (256, channels)");
  const size_t shape[3] = {planar ? channels : height, planar ? height : width, planar ? width : channels};
  if (out.ndim() != 3 || out.shape(0) != shape[0] || out.shape(1) != shape[1] || out.shape(2) != shape[2])
    throw std::invalid_argument("out must be of the image's shape, channels first if planar");
  const uint8_t* entries = static_cast<const uint8_t*>(table.data());
  uint8_t* made = static_cast<uint8_t*>(out.data());
  GilRelease release;
  convert(image.data(), made, height * width, EntryTables(entries, int(channels), int(size)), planar);
}

void gray_all(Changed image) {
  if (image.shape(2) != 3) throw std::invalid_argument("image must be uint8 (height, width, 3)");
  GilRelease release;
  gray(image.data(), image.shape(0) * image.shape(1));
}

void count_all(Image image, Counts counts) {
  const int channels = channels_of(image);
  same_length(size_t(channels), counts.shape(0), "counts", "channel");
  GilRelease release;
  count(image.data(), image.shape(0) * image.shape(1), channels, reinterpret_cast<uint32_t(*)[256]>(counts.data()));
}

}  // namespace

void bind_testing(nb::module_& module) {
  nb::module_ m = module.def_submodule("testing", "Parts of the extension for its own tests.");
  m.def("look_up", &look_up_all, nb::arg("image").noconvert(), nb::arg("table").noconvert(), nb::arg("out").noconvert());
  m.def("convert", &convert_all, nb::arg("image").noconvert(), nb::arg("table").noconvert(), nb::arg("out").noconvert(),
        nb::arg("planar"));
  m.def("count", &count_all, nb::arg("image").noconvert(), nb::arg("counts").noconvert());
  m.def("gray", &gray_all, nb::arg("image").noconvert());
  m.def("use_instruction_set", [](const std::optional<std::string>& name) { use_instruction_set(name.value_or("")); },
        nb::arg("name").none(),
        "Makes all threads use one of instruction_sets(); None: the fastest. Raises ValueError for others. Not while a "
        "batch is being made.");
}

}  // namespace fastfeed
