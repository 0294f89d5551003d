// Python bindings of what the profiler reads in native code: events of Chrome traces.
#include <nanobind/stl/vector.h>

#include <utility>
#include <vector>

#include "bindings/bindings.h"
#include "traces/trace_events.h"

namespace fastfeed {
namespace {

nb::tuple scan(EventScanner& scanner, nb::bytes piece) {
  EventColumns rows;
  std::vector<std::pair<size_t, size_t>> places;
  {
    GilRelease release;
    scanner.scan({piece.c_str(), piece.size()}, rows, places);
  }
  nb::dict columns;
  columns["cat"] = owned_array(std::move(rows.cat));
  columns["name"] = owned_array(std::move(rows.name));
  columns["thread"] = owned_array(std::move(rows.thread));
  columns["stream"] = owned_array(std::move(rows.stream));
  columns["start"] = owned_array(std::move(rows.start));
  columns["end"] = owned_array(std::move(rows.end));
  columns["corr"] = owned_array(std::move(rows.corr));
  columns["bytes"] = owned_array(std::move(rows.bytes));
  columns["args_at"] = owned_array(std::move(rows.args_at));
  columns["args_size"] = owned_array(std::move(rows.args_size));
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
