// Says where the samples of a call lie. Each method adds the k samples of some rows, or of all rows in their order.
#include <optional>
#include <stdexcept>
#include <string>
#include <tuple>
#include <vector>

#include <nanobind/stl/optional.h>
#include <nanobind/stl/tuple.h>
#include <nanobind/stl/vector.h>

#include "bindings/calls.h"

namespace fastfeed {
namespace {

using Checks = nb::ndarray<const uint32_t, nb::shape<-1>, nb::c_contig, nb::device::cpu>;

// The rows that the samples of a method belong to.
class Chosen {
 public:
  Chosen(Locations& locations, const std::optional<Ids>& rows, size_t count) : locations_(locations), rows_(rows) {
    same_length(rows ? rows->shape(0) : locations.all.size(), count, "ids", "row");
  }
  Location& operator[](size_t k) const { return locations_.all.at(rows_ ? size_t(rows_->data()[k]) : k); }

 private:
  Locations& locations_;
  const std::optional<Ids>& rows_;
};

Names* keep(Locations& locations, std::string root, const Text& text, const Ends& ends) {
  const size_t width = ends.itemsize();
  if (ends.ndim() != 1 || (width != 4 && width != 8)) throw std::invalid_argument("ends must be integers (n,)");
  locations.arrays.emplace_back(text, ends);
  return &locations.names.emplace_back(
      Names{std::move(root), text.data(), text.shape(0), ends.data(), ends.shape(0), int(width)});
}

void set_name(Location& location, const Names* names, int64_t name) {
  if (size_t(name) >= names->count) throw std::out_of_range("an id is not in the table of names");
  location.names = names, location.name = name;
}

void add_files(Locations& locations, const std::optional<Ids>& rows, const nb::bytes& root, Text names, Ends ends,
               Ids ids, const std::optional<Ids>& sizes,
               const std::vector<std::tuple<nb::bytes, nb::bytes, int>>& folders, const nb::object& owner) {
  const Chosen chosen(locations, rows, ids.shape(0));
  Names* table = keep(locations, std::string(root.c_str(), root.size()), names, ends);
  for (const auto& [prefix, real, fd] : folders)
    table->folders.push_back({std::string(prefix.c_str(), prefix.size()), std::string(real.c_str(), real.size()), fd});
  locations.owners.push_back(owner);
  if (sizes) same_length(ids.shape(0), sizes->shape(0), "sizes", "id");
  for (size_t k = 0; k < ids.shape(0); ++k) {
    if (ids.data()[k] < 0) continue;  // not to be read
    set_name(chosen[k], table, ids.data()[k]);
    if (sizes) chosen[k].size = sizes->data()[k];
  }
}

void add_ranges(Locations& locations, const std::optional<Ids>& rows, Text names, Ends ends, Ids files, Handles handles,
                Ids firsts, Ids lasts, Ids sizes, Ids modified_ns, int64_t head, const std::optional<Checks>& checks,
                const std::optional<nb::bytes>& feature, int height, int width, const nb::object& owner) {
  const size_t n = files.shape(0);
  const Chosen chosen(locations, rows, n);
  const Names* table = keep(locations, "", names, ends);
  for (const Ids* each : {&firsts, &lasts, &sizes, &modified_ns}) same_length(n, each->shape(0), "ranges", "file");
  same_length(n, handles.shape(0), "handles", "file");
  if (checks) same_length(n, checks->shape(0), "checks", "file");
  if (head < 0 || height < 0 || width < 0 || (head && !checks)) throw std::invalid_argument("ranges: a wrong head");
  const std::string* name = nullptr;
  if (feature) name = &locations.features.emplace_back(feature->c_str(), feature->size());
  for (size_t k = 0; k < n; ++k) {
    const int64_t file = files.data()[k];
    if (file < 0) continue;  // not to be read
    Location& location = chosen[k];
    location.fd = handles.data()[k];
    if (location.fd < 0) set_name(location, table, file);
    location.first = firsts.data()[k], location.last = lasts.data()[k];
    location.size = sizes.data()[k], location.modified_ns = modified_ns.data()[k];
    if (location.first < 0 || location.last < 0) throw std::invalid_argument("ranges must lie in their files");
    location.head = head, location.check = checks ? checks->data()[k] : 0, location.feature = name;
    location.height = height, location.width = width;
  }
  locations.owners.push_back(owner);
}

void add_images(Locations& locations, const std::optional<Ids>& rows, const nb::object& array, Ids ids) {
  const auto images = nb::cast<Pixels>(array, false);
  const Chosen chosen(locations, rows, ids.shape(0));
  const size_t bytes = images.shape(1) * images.shape(2) * images.shape(3);
  for (size_t k = 0; k < ids.shape(0); ++k) {
    const int64_t i = ids.data()[k];
    if (i < 0) continue;  // not to be read
    if (size_t(i) >= images.shape(0)) throw std::out_of_range("an id is not in the array");
    Location& location = chosen[k];
    location.memory = images.data() + size_t(i) * bytes;
    location.last = int64_t(bytes);
    location.height = int(images.shape(1)), location.width = int(images.shape(2));
  }
  locations.owners.push_back(array);
}

// Of each file or range only its first bytes are to be read; of records and pixels all.
void only_first(Locations& locations, int64_t bytes) {
  if (bytes < 1) throw std::invalid_argument("bytes must be at least 1");
  for (Location& location : locations.all)
    if (!location.feature && !location.height) location.most = bytes;
}

// These rows are not to be read.
void leave_out(Locations& locations, Flags rows) {
  same_length(locations.all.size(), rows.shape(0), "rows", "sample");
  for (size_t k = 0; k < locations.all.size(); ++k)
    if (rows.data()[k]) locations.all[k] = Location();
}

}  // namespace

void bind_locations(nb::module_& m) {
  nb::class_<Locations>(m, "Locations")
      .def("__init__", [](Locations* self, size_t count) { new (self) Locations{std::vector<Location>(count), {}, {}, {}, {}}; },
           nb::arg("count"))
      .def("files", &add_files, nb::arg("rows").none(), nb::arg("root"), nb::arg("names"), nb::arg("ends"),
           nb::arg("ids"), nb::arg("sizes").none(), nb::arg("folders") = std::vector<std::tuple<nb::bytes, nb::bytes, int>>(),
           nb::arg("owner") = nb::none())
      .def("ranges", &add_ranges, nb::arg("rows").none(), nb::arg("names"), nb::arg("ends"), nb::arg("files"),
           nb::arg("handles"), nb::arg("firsts"), nb::arg("lasts"), nb::arg("sizes"), nb::arg("modified_ns"),
           nb::arg("head"), nb::arg("checks").none(), nb::arg("feature").none(), nb::arg("height"), nb::arg("width"),
           nb::arg("owner"))
      .def("images", &add_images, nb::arg("rows").none(), nb::arg("images").noconvert(), nb::arg("ids"))
      .def("only_first", &only_first, nb::arg("bytes"))
      .def("leave_out", &leave_out, nb::arg("rows"));
}

}  // namespace fastfeed
