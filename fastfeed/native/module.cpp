// The kernel for Python. Nothing here decides anything: arguments are checked, the GIL is let go, the pool runs.
#include <cstring>
#include <new>
#include <stdexcept>
#include <vector>

#include <jpeglib.h>
#include <nanobind/nanobind.h>
#include <nanobind/ndarray.h>

#include "kernel.h"
#include "pool.h"

namespace nb = nanobind;
using namespace fastfeed;

namespace {

struct Blob {
  const uint8_t* data;
  size_t size;
};

// The bytes of each entry; valid while the list and its entries live.
std::vector<Blob> blobs_of(const nb::list& list) {
  std::vector<Blob> blobs;
  blobs.reserve(nb::len(list));
  for (nb::handle item : list) {
    char* data = nullptr;
    Py_ssize_t size = 0;
    if (PyBytes_AsStringAndSize(item.ptr(), &data, &size) != 0) throw nb::python_error();
    blobs.push_back({reinterpret_cast<const uint8_t*>(data), size_t(size)});
  }
  return blobs;
}

using Table = nb::ndarray<int32_t, nb::shape<-1, 9>, nb::c_contig, nb::device::cpu>;
using Boxes = nb::ndarray<const double, nb::shape<-1, 4>, nb::c_contig, nb::device::cpu>;
using Flips = nb::ndarray<const bool, nb::shape<-1, 2>, nb::c_contig, nb::device::cpu>;
using Sizes = nb::ndarray<const int64_t, nb::shape<-1, 2>, nb::c_contig, nb::device::cpu>;
using Pixels = nb::ndarray<uint8_t, nb::ndim<4>, nb::device::cpu>;
using Codes = nb::ndarray<int8_t, nb::shape<-1>, nb::c_contig, nb::device::cpu>;

void same_length(size_t want, size_t got, const char* what) {
  if (want != got) throw std::invalid_argument(std::string(what) + " must have one entry per blob");
}

void probe(const nb::list& list, Table out, int64_t max_pixels) {
  const std::vector<Blob> blobs = blobs_of(list);
  same_length(blobs.size(), out.shape(0), "out");
  int32_t* row = out.data();
  const Limits limits{max_pixels};
  nb::gil_scoped_release release;
  for (const Blob& blob : blobs) {
    const Header h = read_header(blob.data, blob.size);
    const int32_t values[9] = {int32_t(admit(h, blob.size, limits)),
                               h.shown_height(),
                               h.shown_width(),
                               h.orientation,
                               h.components,
                               h.sof,
                               h.precision,
                               h.restart_interval,
                               int32_t(h.icc)};
    std::memcpy(row, values, sizeof values);
    row += 9;
  }
}

void decode(Pool& pool, const nb::list& list, Boxes boxes, Flips flips, Pixels out, Codes codes, int filter,
            int64_t max_pixels, double enlarge) {
  const std::vector<Blob> blobs = blobs_of(list);
  same_length(blobs.size(), boxes.shape(0), "boxes");
  same_length(blobs.size(), flips.shape(0), "flips");
  same_length(blobs.size(), out.shape(0), "out");
  same_length(blobs.size(), codes.shape(0), "codes");
  if (out.shape(3) != 3 || out.stride(3) != 1 || out.stride(2) != 3)
    throw std::invalid_argument("out must be uint8 (n, height, width, 3) whose rows are contiguous");
  if (filter < 0 || filter > 3) throw std::invalid_argument("filter must be in [0, 3]");
  if (!out.shape(1) || !out.shape(2)) throw std::invalid_argument("out must have at least one pixel");
  const Limits limits{max_pixels, enlarge};
  const double* box = boxes.data();
  const bool* flip = flips.data();
  uint8_t* pixels = out.data();
  int8_t* code = codes.data();
  const ptrdiff_t image = out.stride(0), row = out.stride(1);
  const int height = int(out.shape(1)), width = int(out.shape(2));
  nb::gil_scoped_release release;
  std::memset(code, int(Status::cancelled), blobs.size());
  pool.run(int(blobs.size()), [&](Worker& worker, int i) {
    const Window window{box[4 * i], box[4 * i + 1], box[4 * i + 2], box[4 * i + 3], flip[2 * i], flip[2 * i + 1]};
    const Slot slot{pixels + ptrdiff_t(i) * image, row, height, width};
    code[i] = int8_t(worker.decode(blobs[size_t(i)].data, blobs[size_t(i)].size, window, Filter(filter), limits, slot));
  });
}

nb::list recode(Pool& pool, const nb::list& list, Boxes boxes, Flips flips, Sizes sizes, Codes codes, int filter,
                int64_t max_pixels, double enlarge, int quality, bool subsampled) {
  const std::vector<Blob> blobs = blobs_of(list);
  const size_t n = blobs.size();
  same_length(n, boxes.shape(0), "boxes");
  same_length(n, flips.shape(0), "flips");
  same_length(n, sizes.shape(0), "sizes");
  same_length(n, codes.shape(0), "codes");
  if (filter < 0 || filter > 3) throw std::invalid_argument("filter must be in [0, 3]");
  if (quality < 1 || quality > 100) throw std::invalid_argument("quality must be in [1, 100]");
  const int64_t* side = sizes.data();
  for (size_t i = 0; i < 2 * n; ++i)
    if (side[i] < 1 || side[i] > kMaxSide) throw std::invalid_argument("sizes must be in [1, 65500]");
  const Limits limits{max_pixels, enlarge};
  const double* box = boxes.data();
  const bool* flip = flips.data();
  int8_t* code = codes.data();
  std::vector<std::vector<uint8_t>> files(n);
  {
    nb::gil_scoped_release release;
    std::memset(code, int(Status::cancelled), n);
    pool.run(int(n), [&](Worker& worker, int i) {
      const Window window{box[4 * i], box[4 * i + 1], box[4 * i + 2], box[4 * i + 3], flip[2 * i], flip[2 * i + 1]};
      const Blob& blob = blobs[size_t(i)];
      Status status = worker.recode(blob.data, blob.size, window, Filter(filter), limits, int(side[2 * i]),
                                    int(side[2 * i + 1]), Coding{quality, subsampled});
      try {
        if (status == Status::ok) files[size_t(i)] = worker.file().take();
      } catch (const std::bad_alloc&) {
        status = Status::bomb;
      }
      code[i] = int8_t(status);
    });
  }
  nb::list result;
  for (const auto& file : files) result.append(nb::bytes(file.data(), file.size()));
  return result;
}

}  // namespace

NB_MODULE(_native, m) {
  nb::class_<Pool>(m, "Pool")
      .def(nb::init<int>(), nb::arg("threads") = 1)
      // noconvert: what is written into a converted copy would be lost
      .def("decode", &decode, nb::arg("blobs"), nb::arg("boxes").noconvert(), nb::arg("flips").noconvert(),
           nb::arg("out").noconvert(), nb::arg("codes").noconvert(), nb::arg("filter"), nb::arg("max_pixels"),
           nb::arg("enlarge"))
      .def("recode", &recode, nb::arg("blobs"), nb::arg("boxes").noconvert(), nb::arg("flips").noconvert(),
           nb::arg("sizes").noconvert(), nb::arg("codes").noconvert(), nb::arg("filter"), nb::arg("max_pixels"),
           nb::arg("enlarge"), nb::arg("quality"), nb::arg("subsampled"))
      .def("cancel", &Pool::cancel)
      .def_prop_ro("threads", &Pool::size);
  m.def("probe", &probe, nb::arg("blobs"), nb::arg("out").noconvert(), nb::arg("max_pixels"));
  m.attr("LIBJPEG") = nb::str("libjpeg-turbo API ") + nb::str(nb::int_(JPEG_LIB_VERSION));
}
