// Python bindings of what the profiler reads in native code: events of Chrome traces.
#include <nanobind/stl/vector.h>

#include <utility>
#include <vector>

#include "bindings/bindings.h"
#include "traces/trace_events.h"

namespace fastfeed {
namespace {

// The vector as a NumPy array, without a copy.
template <typename T>
nb::object array(std::vector<T>&& values) {
  auto* kept = new std::vector<T>(std::move(values));
  const nb::capsule owner(kept, [](void* data) noexcept { delete static_cast<std::vector<T>*>(data); });
  return nb::ndarray<nb::numpy, T, nb::ndim<1>>(kept->data(), {kept->size()}, owner).cast();
}

nb::tuple scan(EventScanner& scanner, nb::bytes piece) {
  EventColumns rows;
  std::vector<std::pair<size_t, size_t>> places;
  {
    GilRelease release;
    scanner.scan({piece.c_str(), piece.size()}, rows, places);
  }
  nb::dict columns;
  columns["cat"] = array(std::move(rows.cat));
  columns["name"] = array(std::move(rows.name));
  columns["thread"] = array(std::move(rows.thread));
  columns["stream"] = array(std::move(rows.stream));
  columns["start"] = array(std::move(rows.start));
  columns["end"] = array(std::move(rows.end));
  columns["corr"] = array(std::move(rows.corr));
  columns["bytes"] = array(std::move(rows.bytes));
  columns["args_at"] = array(std::move(rows.args_at));
  columns["args_size"] = array(std::move(rows.args_size));
  nb::list others;
  for (const auto& [at, size] : places)
    if (size) others.append(nb::bytes(piece.c_str() + at, size));
  return nb::make_tuple(columns, others);
}

nb::list since(const TextIndex& texts, size_t first) {
  nb::list result;
  for (size_t i = first; i < texts.size(); ++i) result.append(nb::bytes(texts.at(i).data(), texts.at(i).size()));
  return result;
}

}  // namespace

void bind_traces(nb::module_& m) {
  nb::class_<EventScanner>(m, "EventScanner")
      .def(nb::init<>())
      .def("scan", &scan, nb::arg("piece"))
      .def("cats", [](const EventScanner& s, size_t first) { return since(s.cats(), first); }, nb::arg("first"))
      .def("names", [](const EventScanner& s, size_t first) { return since(s.names(), first); }, nb::arg("first"))
      .def("threads", [](const EventScanner& s, size_t first) { return since(s.threads(), first); }, nb::arg("first"))
      .def("streams", [](const EventScanner& s, size_t first) { return since(s.streams(), first); }, nb::arg("first"));
}

}  // namespace fastfeed
