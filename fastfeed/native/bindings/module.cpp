// The Python module: decoding and encoding of files; the other files here bind the rest.
#include <array>
#include <cstring>
#include <new>
#include <optional>
#include <stdexcept>
#include <vector>

#include <jpeglib.h>
#ifdef __GLIBC__
#include <malloc.h>
#endif
#include <nanobind/stl/array.h>
#include <nanobind/stl/optional.h>
#include <nanobind/stl/string.h>
#include <nanobind/stl/vector.h>

#include "bindings/bindings.h"
#include "system/instruction_sets.h"
#include "decode/worker.h"
#include "decode/probe.h"
#include "jpeg/libjpeg.h"
#include "png/png.h"
#include "tiff/tiff.h"
#include "batch/pool.h"
#include "system/admission.h"

using namespace fastfeed;

namespace {

// Buffers of files (bytes, memoryview, mmap, NumPy), without a copy. Held until destruction, even if the list changes.
class Blobs {
 public:
  explicit Blobs(const nb::list& list) {
    views_.reserve(nb::len(list));
    for (nb::handle item : list) {
      Py_buffer view;
      if (PyObject_GetBuffer(item.ptr(), &view, PyBUF_SIMPLE) != 0) {
        release();
        throw nb::python_error();
      }
      views_.push_back(view);
    }
  }
  ~Blobs() { release(); }  // with the GIL
  Blobs(const Blobs&) = delete;
  Blobs& operator=(const Blobs&) = delete;

  size_t size() const { return views_.size(); }
  const uint8_t* data(size_t i) const { return static_cast<const uint8_t*>(views_[i].buf); }
  size_t bytes(size_t i) const { return size_t(views_[i].len); }

 private:
  void release() {
    for (Py_buffer& view : views_) PyBuffer_Release(&view);
    views_.clear();
  }

  std::vector<Py_buffer> views_;
};

std::array<size_t, 4> held_by_denominator(const nb::object& blob) {
  nb::list one;
  one.append(blob);
  const Blobs blobs(one);
  const Header header = read_header(blobs.data(0), blobs.bytes(0));
  if (header.status != Status::ok) return {};
  JpegReader::Denominators eighth;  // in planes, a component with fewer samples than others may be shrunk by a quarter only
  for (size_t i = 0; i < eighth.size(); ++i)
    eighth[i] = header.sampling[i] >> 4 == header.most_across() && (header.sampling[i] & 15) == header.most_down() ? 8 : 4;
  const size_t least = header.format == Format::jpeg ? jpeg_held_bytes(header, eighth) : 0;
  return {held_bytes(header, 1), held_bytes(header, 2), held_bytes(header, 4), std::max(held_bytes(header, 8), least)};
}

int check_jpeg(const nb::object& blob) {
  nb::list one;
  one.append(blob);
  const Blobs blobs(one);
  const GilRelease release;
  return int(libjpeg_reader(libjpeg_huffman_reason().empty())->check(blobs.data(0), blobs.bytes(0)));
}

// Samples of a PNG or TIFF of 16 bits, as they are stored: (height, width, bytes of a pixel, all bytes); None where native
// code does not read the file.
nb::object stored_samples(const nb::object& blob) {
  nb::list one;
  one.append(blob);
  const Blobs blobs(one);
  const Header header = read_header(blobs.data(0), blobs.bytes(0));
  const bool is_png = header.format == Format::png, is_tiff = header.format == Format::tiff;
  if (header.status != Status::ok || header.precision != 16 || (!is_png && !is_tiff)) return nb::none();
  const size_t pixel = 2 * size_t(png_samples(header.color)), stride = size_t(header.width) * pixel;
  nb::bytes samples = nb::steal<nb::bytes>(PyBytes_FromStringAndSize(nullptr, Py_ssize_t(stride) * header.height));
  if (!samples.is_valid()) throw nb::python_error();
  uint8_t* out = reinterpret_cast<uint8_t*>(const_cast<char*>(samples.c_str()));
  Status status;
  {
    const GilRelease release;
    const auto reader = is_png ? png_reader() : tiff_reader();
    Region region;
    region.height = header.height, region.width = header.width, region.stored = true;
    status = reader->start(blobs.data(0), blobs.bytes(0), header, region, false);
    for (int left = header.height; status == Status::ok && left > 0;) {
      const RowReader::Rows rows = reader->rows();
      if (!rows.count) status = Status::corrupt;
      for (int y = 0; y < rows.count; ++y, out += stride) std::memcpy(out, rows.at + size_t(y) * rows.stride, stride);
      left -= rows.count;
    }
    if (status == Status::ok) status = reader->finish();
  }
  if (status != Status::ok) return nb::none();
  return nb::make_tuple(header.height, header.width, pixel, samples);
}

using Sizes = nb::ndarray<const int64_t, nb::shape<-1, 2>, nb::c_contig, nb::device::cpu>;
using Times = nb::ndarray<int64_t, nb::shape<-1, 2>, nb::c_contig, nb::device::cpu>;
using Pixels = nb::ndarray<uint8_t, nb::ndim<4>, nb::device::cpu>;

void probe(const nb::list& list, Table out, int64_t max_pixels) {
  const Blobs blobs(list);
  same_length(blobs.size(), out.shape(0), "out");
  int32_t* row = out.data();
  const Limits limits{max_pixels};
  GilRelease release;
  for (size_t i = 0; i < blobs.size(); ++i, row += 9) {
    const Header h = read_header(blobs.data(i), blobs.bytes(i));
    const int32_t values[9] = {int32_t(admit(h, blobs.bytes(i), limits)),
                               h.shown_height(),
                               h.shown_width(),
                               h.orientation,
                               h.components,
                               h.sof,
                               h.precision,
                               h.restart_interval,
                               int32_t(h.icc)};
    std::memcpy(row, values, sizeof values);
  }
}

// Arguments common to decode and recode: a window of each file, and how to scale it.
class Ask {
 public:
  Ask(const nb::list& list, const Boxes& boxes, const Flips& flips, const Codes& codes, int filter, int64_t max_pixels,
      double enlarge, const Matte& matte, int channels = 3)
      : blobs(list), filter(Filter(filter)), limits{max_pixels, enlarge, matte, false, channels}, codes(codes.data()), box_(boxes.data()),
        flip_(flips.data()) {
    same_length(size(), boxes.shape(0), "boxes");
    same_length(size(), flips.shape(0), "flips");
    same_length(size(), codes.shape(0), "codes");
    if (filter < 0 || filter >= kFilters) throw std::invalid_argument("filter must be in [0, 5]");
  }

  size_t size() const { return blobs.size(); }
  Window window(size_t i) const {
    const double* box = box_ + 4 * i;
    return {box[0], box[1], box[2], box[3], flip_[2 * i], flip_[2 * i + 1]};
  }
  // Calls task(worker, i) for each file, whose result is the file's code. `times`: nanoseconds of resizing and encoding.
  template <class Task>
  void run(Pool& pool, int64_t* times, Task task) const {
    std::memset(codes, int(Status::cancelled), size());
    pool.run(int(size()), [&](Worker& worker, int i) {
      worker.resize_ns = worker.encode_ns = 0;
      codes[i] = int8_t(task(worker, size_t(i)));
      if (times) times[2 * i] = worker.resize_ns, times[2 * i + 1] = worker.encode_ns;
    });
  }

  const Blobs blobs;
  const Filter filter;
  const Limits limits;
  int8_t* const codes;

 private:
  const double* box_;
  const bool* flip_;
};

int64_t* times_of(const std::optional<Times>& times, size_t samples) {
  if (!times) return nullptr;
  same_length(samples, times->shape(0), "times");
  return times->data();
}

void decode(Pool& pool, const nb::list& list, Boxes boxes, Flips flips, Pixels out, Codes codes, int filter,
            int64_t max_pixels, double enlarge, const Matte& matte, const std::optional<Times>& times) {
  const int channels = int(out.shape(3));
  const Ask ask(list, boxes, flips, codes, filter, max_pixels, enlarge, matte, channels);
  same_length(ask.size(), out.shape(0), "out");
  if ((channels != 3 && channels != 1) || out.stride(3) != 1 || out.stride(2) != channels)
    throw std::invalid_argument("out must be uint8 (n, height, width, 3 or 1) whose rows are contiguous");
  if (!out.shape(1) || !out.shape(2)) throw std::invalid_argument("out must have at least one pixel");
  uint8_t* pixels = out.data();
  const ptrdiff_t image = out.stride(0), row = out.stride(1);
  const int height = int(out.shape(1)), width = int(out.shape(2));
  GilRelease release;
  ask.run(pool, times_of(times, ask.size()), [&](Worker& worker, size_t i) {
    const Slot slot{pixels + ptrdiff_t(i) * image, row, height, width};
    return worker.decode(ask.blobs.data(i), ask.blobs.bytes(i), ask.window(i), ask.filter, ask.limits, slot);
  });
}

nb::list recode(Pool& pool, const nb::list& list, Boxes boxes, Flips flips, Sizes sizes, Codes codes, int filter,
                int64_t max_pixels, double enlarge, const Matte& matte, int quality, bool subsampled, bool optimize,
                const std::optional<Times>& times) {
  const Ask ask(list, boxes, flips, codes, filter, max_pixels, enlarge, matte);
  same_length(ask.size(), sizes.shape(0), "sizes");
  if (quality < 1 || quality > 100) throw std::invalid_argument("quality must be in [1, 100]");
  const int64_t* side = sizes.data();
  for (size_t i = 0; i < 2 * ask.size(); ++i)
    if (side[i] < 1 || side[i] > kMaxSide) throw std::invalid_argument("sizes must be in [1, 65500]");
  const Coding coding{quality, subsampled, optimize};
  std::vector<std::vector<uint8_t>> files(ask.size());
  {
    GilRelease release;
    ask.run(pool, times_of(times, ask.size()), [&](Worker& worker, size_t i) {
      const int height = int(side[2 * i]), width = int(side[2 * i + 1]);
      const Status status = worker.recode(ask.blobs.data(i), ask.blobs.bytes(i), ask.window(i), ask.filter, ask.limits,
                                          height, width, coding);
      try {
        if (status == Status::ok) files[i] = worker.file().take();
      } catch (const std::bad_alloc&) {
        return Status::no_memory;
      }
      return status;
    });
  }
  nb::list result;
  for (const auto& file : files) result.append(nb::bytes(file.data(), file.size()));
  return result;
}

void give_back() {
#ifdef __GLIBC__
  malloc_trim(0);
#endif
}

}  // namespace

NB_MODULE(_native, m) {
  nb::set_leak_warnings(false);  // a daemon thread, or a forked child, still holds objects at exit
  if (PyInterpreterState_GetID(PyInterpreterState_Get()) != 0)  // the main one's; _Main() is not in the stable ABI
    throw nb::import_error(
        "fastfeed runs in the main interpreter of a process only, and this is a sub-interpreter: its threads would take "
        "the wrong one's lock. Use a process instead, such as one of multiprocessing");
  nb::class_<Pool>(m, "Pool")
      .def(nb::init<int>(), nb::arg("threads") = 1)
      // noconvert: what is written into a converted copy would be lost
      .def("decode", &decode, nb::arg("blobs"), nb::arg("boxes").noconvert(), nb::arg("flips").noconvert(),
           nb::arg("out").noconvert(), nb::arg("codes").noconvert(), nb::arg("filter"), nb::arg("max_pixels"),
           nb::arg("enlarge"), nb::arg("matte") = Matte{255, 255, 255}, nb::arg("times").noconvert().none() = nb::none())
      .def("recode", &recode, nb::arg("blobs"), nb::arg("boxes").noconvert(), nb::arg("flips").noconvert(),
           nb::arg("sizes").noconvert(), nb::arg("codes").noconvert(), nb::arg("filter"), nb::arg("max_pixels"),
           nb::arg("enlarge"), nb::arg("matte"), nb::arg("quality"), nb::arg("subsampled"),
           nb::arg("optimize"), nb::arg("times").noconvert().none() = nb::none())
      .def("cancel", &Pool::cancel)
      .def_prop_ro("threads", &Pool::size);
  m.def("probe", &probe, nb::arg("blobs"), nb::arg("out").noconvert(), nb::arg("max_pixels"));
  m.def("held_bytes", &held_by_denominator, nb::arg("blob"),
        "Bytes that decoding a file keeps at once, shrunk by 1, 2, 4 and 8; zeros where native code does not decode it.");
  m.def("stored_samples", &stored_samples, nb::arg("blob"),
        "Height, width, bytes of a pixel and samples of a PNG or TIFF of 16 bits; None for other files.");
  m.def("check_jpeg", &check_jpeg, nb::arg("blob"),
        "Status of a JPEG of any number of components, all of whose coded data are read.");
  bind_draws(m);
  bind_executor(m);
  bind_libjpeg(m);
  bind_masks(m);
  bind_nvjpeg(m);
  bind_scaling(m);
  bind_testing(m);
  bind_traces(m);
  bind_values(m);
  m.def("limit_held_bytes", &limit_held_bytes, nb::arg("bytes"),
        "How many bytes decoding may hold at once in this process, over what the smallest images need.");
  m.def("give_back", &give_back, nb::call_guard<GilRelease>(),
        "Returns memory that the C library's allocator keeps after large images to the system.");
  m.def("instruction_sets", &instruction_sets,
        "Instruction sets that this machine has of those compiled in, fastest first.");
  m.attr("LIBJPEG") = nb::str("libjpeg-turbo API ") + nb::str(nb::int_(JPEG_LIB_VERSION));
}
