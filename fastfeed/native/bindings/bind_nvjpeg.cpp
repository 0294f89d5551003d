// The JPEG engine of a GPU: which samples it takes, and their planes in the GPU's memory.
#include <memory>
#include <stdexcept>

#include <nanobind/stl/string.h>

#include "bindings/calls.h"
#include "gpu/nvjpeg_decoder.h"

namespace fastfeed {
namespace {

using Layouts = nb::ndarray<int64_t, nb::shape<-1, 12>, nb::c_contig, nb::device::cpu>;
using Addresses = nb::ndarray<const uint64_t, nb::shape<-1>, nb::c_contig, nb::device::cpu>;
using Refused = nb::ndarray<bool, nb::shape<-1>, nb::c_contig, nb::device::cpu>;

static_assert(sizeof(PlanesLayout) == 12 * sizeof(int64_t), "a layout is a row of the array");

// Ends without the interpreter's lock: giving back memory of a GPU waits for all of its work, also for a callback's.
struct Decoder {
  std::unique_ptr<NvjpegDecoder> own;

  Decoder(const std::string& nvjpeg, const std::string& driver, int device, int decoders) {
    const GilRelease release;
    own = std::make_unique<NvjpegDecoder>(nvjpeg, driver, device, decoders);
  }
  Decoder(const Decoder&) = delete;
  Decoder& operator=(const Decoder&) = delete;
  ~Decoder() {
    const GilRelease release;
    own.reset();
  }
};

int plan(Decoder& decoder, const SampleList& list, Flags skip, double cpu_share, Layouts layouts) {
  same_length(list.samples.size(), skip.shape(0), "skip", "sample");
  same_length(list.samples.size(), layouts.shape(0), "layouts", "sample");
  const GilRelease release;
  return decoder.own->plan(list.samples, skip.data(), cpu_share, reinterpret_cast<PlanesLayout*>(layouts.data()));
}

void decode(Decoder& decoder, const SampleList& list, Ids rows, Addresses addresses, Layouts layouts,
            Refused refused) {
  same_length(list.samples.size(), layouts.shape(0), "layouts", "sample");
  same_length(rows.shape(0), addresses.shape(0), "addresses", "row");
  same_length(rows.shape(0), refused.shape(0), "refused", "row");
  const auto* of = reinterpret_cast<const PlanesLayout*>(layouts.data());
  for (size_t k = 0; k < rows.shape(0); ++k) {
    const int64_t row = rows.data()[k];
    if (row < 0 || size_t(row) >= list.samples.size()) throw std::out_of_range("a row is not a sample");
    if (of[row].bytes <= 0) throw std::invalid_argument("a row is not one that plan() found decodable");
  }
  const GilRelease release;
  decoder.own->decode(list.samples, rows.data(), addresses.data(), rows.shape(0), of, refused.data());
}

}  // namespace

void bind_nvjpeg(nb::module_& m) {
  nb::class_<Decoder>(m, "NvjpegDecoder")
      .def(nb::init<const std::string&, const std::string&, int, int>(), nb::arg("nvjpeg"), nb::arg("driver"),
           nb::arg("device"), nb::arg("decoders"))
      .def("plan", &plan, nb::arg("samples"), nb::arg("skip"), nb::arg("cpu_share"), nb::arg("layouts").noconvert())
      .def("decode", &decode, nb::arg("samples"), nb::arg("rows"), nb::arg("addresses"), nb::arg("layouts").noconvert(),
           nb::arg("refused").noconvert());
}

}  // namespace fastfeed
