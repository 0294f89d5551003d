// Reads samples, or borrows them from Python, and looks at their headers.
#include <cstring>
#include <stdexcept>

#include <nanobind/stl/unique_ptr.h>

#include "bindings/calls.h"
#include "batch/checks.h"
#include "decode/probe.h"
#include "jpeg/jpeg_header.h"
#include "system/system.h"

namespace fastfeed {

void SampleList::borrow(size_t i, nb::handle object) {
  // keeps the buffer exported, so that a bytearray cannot be resized meanwhile
  nb::object kept = nb::steal(PyMemoryView_FromObject(object.ptr()));
  if (!kept.is_valid()) throw nb::python_error();
  Py_buffer view;
  if (PyObject_GetBuffer(kept.ptr(), &view, PyBUF_FULL_RO) != 0) throw nb::python_error();
  const bool contiguous = PyBuffer_IsContiguous(&view, 'C') != 0;
  samples[i].data = static_cast<const uint8_t*>(view.buf);
  samples[i].size = size_t(view.len);
  PyBuffer_Release(&view);
  if (!contiguous) throw nb::buffer_error("a sample must be contiguous");
  samples[i].read = Read::ok;
  owners.push_back(std::move(kept));
}

namespace {

using WrittenCodes = nb::ndarray<int32_t, nb::shape<-1>, nb::c_contig, nb::device::cpu>;
using WrittenSides = nb::ndarray<int64_t, nb::shape<-1, 2>, nb::c_contig, nb::device::cpu>;

// Reads until `max_bytes` are there; later samples are skipped. span: thread, begin and duration of each, and the bytes
// that were read from a file.
std::unique_ptr<SampleList> read_all(Executor& executor, const Locations& locations, int64_t max_bytes,
                                     int64_t max_pixels, Spans spans, nb::object stop) {
  auto list = std::make_unique<SampleList>();
  const size_t n = locations.all.size();
  same_length(n, spans.shape(0), "spans", "sample");
  list->samples.resize(n);
  list->buffers = executor.buffers();
  list->owners = locations.owners;
  for (Sample& sample : list->samples) {
    sample.read = Read::skipped;
    list->memory.emplace_back(nullptr, Buffers::Free{nullptr, 0});
  }
  Limits limits;
  limits.max_pixels = max_pixels;
  std::atomic<int64_t> total{0};
  int64_t* span = spans.data();
  std::memset(span, 0, n * 5 * sizeof(int64_t));
  executor.run(int(n), [&](Worker& worker, int i) {
    Sample& sample = list->samples[size_t(i)];
    if (i > 0 && total.load() >= max_bytes) return;
    int64_t* own = span + 5 * i;
    own[0] = thread_id(), own[1] = clock_ns();
    const Location& location = locations.all[size_t(i)];
    sample.read = read_sample(location, *list->buffers, list->memory[size_t(i)], sample, total, worker.stopped);
    if (sample.read == Read::ok && !location.height) probe(sample, limits);
    own[2] = clock_ns() - own[1];
    if (sample.read == Read::ok && !location.memory) own[3] = int64_t(sample.size);
  }, stop, true);  // or the next batch waits to be read until this one is made
  return list;
}

std::unique_ptr<SampleList> borrow_all(Executor& executor, const nb::list& blobs, int64_t max_pixels, nb::object stop) {
  auto list = std::make_unique<SampleList>();
  list->samples.resize(nb::len(blobs));
  for (size_t i = 0; i < list->samples.size(); ++i) list->borrow(i, blobs[i]);
  Limits limits;
  limits.max_pixels = max_pixels;
  for (Sample& sample : list->samples) sample.read = Read::skipped;  // until it is looked at
  executor.run(int(list->samples.size()), [&](Worker&, int i) {
    Sample& sample = list->samples[size_t(i)];
    probe(sample, limits);
    sample.read = Read::ok;
  }, stop, true);
  return list;
}

void set_size(Sample& sample, int64_t height, int64_t width) {
  if (height < 1 || width < 1 || height > kMostSide || width > kMostSide)
    throw std::invalid_argument("the sides of an image must be in [1, 2^24]");
  sample.height = int(height), sample.width = int(width);
}

// Images of any size, one buffer each.
std::unique_ptr<SampleList> pixels_of(const nb::list& arrays, Sides sides) {
  auto list = std::make_unique<SampleList>();
  list->samples.resize(nb::len(arrays));
  same_length(list->samples.size(), sides.shape(0), "sides", "image");
  for (size_t i = 0; i < list->samples.size(); ++i) {
    list->borrow(i, arrays[i]);
    Sample& sample = list->samples[i];
    set_size(sample, sides.data()[2 * i], sides.data()[2 * i + 1]);
    sample.status = Status::ok;
  }
  return list;
}

// Rows of an array of images.
std::unique_ptr<SampleList> images_of(const nb::object& array, Ids ids) {
  const auto images = nb::cast<Pixels>(array, false);
  auto list = std::make_unique<SampleList>();
  const size_t bytes = images.shape(1) * images.shape(2) * images.shape(3);
  list->samples.resize(ids.shape(0));
  list->owners.push_back(array);
  for (size_t k = 0; k < list->samples.size(); ++k) {
    const int64_t i = ids.data()[k];
    if (i < 0 || size_t(i) >= images.shape(0)) throw std::out_of_range("an id is not in the array");
    Sample& sample = list->samples[k];
    sample.data = images.data() + size_t(i) * bytes;
    sample.size = bytes;
    set_size(sample, int64_t(images.shape(1)), int64_t(images.shape(2)));
    sample.status = Status::ok;
  }
  return list;
}

// Of the samples from `first` on: 0 where native code decodes it, else its Status, or minus what became of reading it;
// and its height and width. Returns how many are not 0.
int inspect(const SampleList& list, size_t first, WrittenCodes codes, WrittenSides sides) {
  const size_t n = codes.shape(0);
  same_length(n, sides.shape(0), "sides", "code");
  if (first > list.samples.size() || n > list.samples.size() - first) throw std::out_of_range("there are fewer samples");
  int others = 0;
  for (size_t k = 0; k < n; ++k) {
    const Sample& sample = list.samples[first + k];
    codes.data()[k] = sample.read == Read::ok ? int32_t(sample.status) : -int32_t(sample.read);
    sides.data()[2 * k] = sample.height, sides.data()[2 * k + 1] = sample.width;
    others += codes.data()[k] != 0;
  }
  return others;
}

// Samples [first, last) of a list that outlives the result.
std::unique_ptr<SampleList> part_of(const SampleList& list, size_t first, size_t last) {
  if (first > last || last > list.samples.size()) throw std::out_of_range("a part is not in its list");
  auto part = std::make_unique<SampleList>();
  part->samples.assign(list.samples.begin() + ptrdiff_t(first), list.samples.begin() + ptrdiff_t(last));
  return part;
}

nb::bytes bytes_of(const SampleList& list, size_t i) {
  const Sample& sample = list.samples.at(i);
  return nb::bytes(sample.data, sample.read == Read::ok ? sample.size : 0);
}

// The same without a copy, read-only; it keeps the list.
nb::ndarray<nb::numpy, const uint8_t, nb::ndim<1>> view_of(const nb::object& self, size_t i) {
  const Sample& sample = nb::cast<const SampleList&>(self).samples.at(i);
  return {sample.data, {sample.read == Read::ok ? sample.size : 0}, self};
}

// What is true of each of these files.
nb::list each(const nb::list& blobs, bool (*is_true)(const uint8_t*, size_t)) {
  SampleList list;
  list.samples.resize(nb::len(blobs));
  for (size_t i = 0; i < list.samples.size(); ++i) list.borrow(i, blobs[i]);
  std::vector<bool> found;
  {
    GilRelease release;
    for (const Sample& sample : list.samples) found.push_back(is_true(sample.data, sample.size));
  }
  nb::list result;
  for (const bool one : found) result.append(one);
  return result;
}

nb::list last_scans_end(const nb::list& blobs) { return each(blobs, last_scan_ends); }

// And their components are not red, green and blue, on which decoders differ, nor is their EXIF an odd one.
nb::list plain_jpegs(const nb::list& blobs) {
  return each(blobs, [](const uint8_t* data, size_t size) {
    const Header header = read_header(data, size);
    return last_scan_ends(data, size) && !header.rgb && header.plain_exif;
  });
}

// What Python has read instead: a file, or pixels, which have a height.
void put(SampleList& list, size_t i, const nb::object& blob, int64_t max_pixels, int height, int width) {
  list.samples.at(i) = Sample();
  list.borrow(i, blob);
  if (height) {
    set_size(list.samples[i], height, width);
    list.samples[i].status = Status::ok;
    return;
  }
  Limits limits;
  limits.max_pixels = max_pixels;
  probe(list.samples[i], limits);
}

}  // namespace

void bind_samples(nb::class_<Executor>& executor, nb::module_& m) {
  nb::class_<SampleList>(m, "Samples")
      .def("__len__", [](const SampleList& list) { return list.samples.size(); })
      .def("inspect", &inspect, nb::arg("first"), nb::arg("codes").noconvert(), nb::arg("sides").noconvert())
      .def("part", &part_of, nb::arg("first"), nb::arg("last"), nb::keep_alive<0, 1>())
      .def("bytes", &bytes_of, nb::arg("i"))
      .def("view", &view_of, nb::arg("i"))
      .def("put", &put, nb::arg("i"), nb::arg("blob"), nb::arg("max_pixels"), nb::arg("height"),
           nb::arg("width"))
      .def_static("of_pixels", &pixels_of, nb::arg("arrays"), nb::arg("sides").noconvert())
      .def_static("of_images", &images_of, nb::arg("images").noconvert(), nb::arg("ids").noconvert());
  m.def("last_scans_end", &last_scans_end, nb::arg("blobs"));
  m.def("plain_jpegs", &plain_jpegs, nb::arg("blobs"));
  executor
      .def("read", &read_all, nb::arg("locations"), nb::arg("max_bytes"), nb::arg("max_pixels"),
           nb::arg("spans").noconvert(), nb::arg("stop"))
      .def("borrow", &borrow_all, nb::arg("blobs"), nb::arg("max_pixels"), nb::arg("stop"));
}

}  // namespace fastfeed
