// Programs from Python: a dict of what never changes from call to call.
#include <algorithm>
#include <climits>
#include <map>
#include <new>
#include <stdexcept>
#include <string>

#include <nanobind/stl/array.h>
#include <nanobind/stl/string.h>

#include "bindings/calls.h"
#include "batch/checks.h"

namespace fastfeed {
namespace {

nb::tuple parts_of(nb::handle entry, size_t least) {
  auto parts = nb::cast<nb::tuple>(entry);
  if (parts.size() < least) throw std::invalid_argument("a part of a program has too few entries");
  return parts;
}

Op op_of(nb::handle entry) {
  const auto parts = parts_of(entry, 3);
  const std::string name = nb::cast<std::string>(parts[0]);
  const auto kind = kinds().find(name);
  if (kind == kinds().end()) throw std::invalid_argument("no op of this name: " + name);
  Op op{kind->second.code, kind->second.numbers, {}, {}, 0};
  for (nb::handle constant : nb::cast<nb::tuple>(parts[1])) op.constants.push_back(nb::cast<double>(constant));
  if (op.code == Code::grid_distortion)  // two lines of a grid's steps and one more
    op.numbers = 2 * whole_within(op.constants.empty() ? 0 : op.constants.back(), 0, 64) + 2;
  if (op.code == Code::augmix) {
    op.versions = op.constants.empty() ? 0 : whole_within(op.constants[0], 0, 17);
    op.numbers = op.versions + 1;
    for (nb::handle layer : nb::cast<nb::tuple>(parts[2])) {
      op.chain.emplace_back();
      for (nb::handle each : nb::cast<nb::tuple>(layer)) op.chain.back().ops.push_back(op_of(each));
    }
  }
  return op;
}

Conversion::Standardized standardized_of(const std::string& dtype, int size) {
  using Kind = Conversion::Standardized;
  static const std::map<std::string, Kind> all = {
      {"", Kind::none}, {"float32", Kind::float32}, {"float16", Kind::float16}, {"bfloat16", Kind::bfloat16}};
  const auto kind = all.find(dtype);
  if (kind == all.end() || (!dtype.empty() && (size == 4) != (kind->second == Kind::float32)))
    throw std::invalid_argument("standardized must be the dtype of the table");
  return kind->second;
}

Program program_of(const nb::dict& fields) {
  Program program;
  const auto integer = [&](const char* name) { return nb::cast<int64_t>(fields[name]); };
  program.encoded = nb::cast<bool>(fields["encoded"]);
  const auto small = [&](const char* name) { return int(std::clamp<int64_t>(integer(name), -1, INT_MAX)); };
  program.height = small("height"), program.width = small("width");
  program.out_height = small("out_height"), program.out_width = small("out_width");
  program.channels = small("channels");
  program.views = small("views");
  program.whole = nb::cast<bool>(fields["whole"]);
  program.filter = Filter(small("filter"));
  program.limits.max_pixels = integer("max_pixels");
  program.limits.enlarge = nb::cast<double>(fields["enlarge"]);
  if (fields.contains("enlarge_by_filter")) {
    const auto parts = parts_of(fields["enlarge_by_filter"], kFilters);
    for (size_t k = 0; k < kFilters; ++k) program.enlarge_by_filter[k] = nb::cast<double>(parts[k]);
  }
  program.limits.matte = nb::cast<Matte>(fields["matte"]);
  program.limits.channels = program.channels;
  program.border.mode = Border::Mode(small("border"));
  const auto fill = parts_of(fields["fill"], program.channels == 1 ? 1 : 3);
  for (size_t c = 0; c < (program.channels == 1 ? 1 : 3); ++c) program.border.fill[c] = nb::cast<uint8_t>(fill[c]);
  for (nb::handle layer : nb::cast<nb::tuple>(fields["layers"])) {
    program.layers.emplace_back();
    for (nb::handle each : nb::cast<nb::tuple>(layer)) {
      program.layers.back().ops.push_back(op_of(each));
    }
  }
  if (fields.contains("wait_ns")) program.wait_ns = integer("wait_ns");
  Conversion& conversion = program.conversion;
  conversion.planar = nb::cast<bool>(fields["planar"]);
  if (!fields["table"].is_none()) {
    const auto table = nb::cast<nb::bytes>(fields["table"]);
    const int channels = program.channels == 1 ? 1 : 3, size = int(table.size() / (256 * size_t(channels)));
    if (table.size() != size_t(256 * channels * size) || (size != 2 && size != 4))
      throw std::invalid_argument("a table must be (256, channels) of 2 or 4 bytes");
    const auto* data = reinterpret_cast<const uint8_t*>(table.c_str());
    conversion.tables = std::make_shared<EntryTables>(data, channels, size);
    if (fields.contains("standardized"))
      conversion.standardized = standardized_of(nb::cast<std::string>(fields["standardized"]), size);
  }
  if (!fields["noise"].is_none()) {
    const auto parts = parts_of(fields["noise"], 3);
    const auto steps = nb::cast<Steps>(parts[0], false);
    const auto gray = nb::cast<Text>(parts[1], false);
    same_length(steps.shape(0), gray.shape(0), "gray", "step");
    program.noise = {steps.data(), gray.data(), int64_t(steps.shape(0)), nb::cast<int>(parts[2]),
                     std::make_shared<nb::tuple>(parts)};
  }
  check(program);
  return program;
}

}  // namespace

void bind_program(nb::module_& m) {
  nb::class_<Program>(m, "Program").def("__init__", [](Program* self, const nb::dict& fields) {
    new (self) Program(program_of(fields));
  });
  nb::dict numbers;
  for (const auto& [name, kind] : kinds()) numbers[name.c_str()] = kind.numbers;
  m.attr("OPS") = numbers;
}

}  // namespace fastfeed
