// Programs from Python: a dict of what never changes from call to call.
#include <new>
#include <stdexcept>
#include <string>

#include <nanobind/stl/string.h>

#include "calls.h"

namespace fastfeed {
namespace {

Op op_of(nb::handle entry) {
  const auto parts = nb::cast<nb::tuple>(entry);
  const std::string name = nb::cast<std::string>(parts[0]);
  const auto kind = kinds().find(name);
  if (kind == kinds().end()) throw std::invalid_argument("no op of this name: " + name);
  Op op{kind->second.code, kind->second.numbers, {}, {}, 0};
  for (nb::handle constant : nb::cast<nb::tuple>(parts[1])) op.constants.push_back(nb::cast<double>(constant));
  if (op.code == Code::augmix) {
    op.versions = int(op.constants.at(0));
    if (op.versions < 1 || op.versions > 16) throw std::invalid_argument("augmix mixes 1 to 16 versions");
    op.numbers = op.versions + 1;
    for (nb::handle layer : nb::cast<nb::tuple>(parts[2])) {
      op.chain.emplace_back();
      for (nb::handle each : nb::cast<nb::tuple>(layer)) op.chain.back().ops.push_back(op_of(each));
    }
  }
  return op;
}

void check_constants(const Op& op, int channels) {
  size_t least = 0;
  switch (op.code) {
    case Code::lut: least = 256; break;
    case Code::blur: least = 1; break;
    case Code::warp: least = 1 + size_t(channels); break;
    case Code::erase: case Code::grid_mask: least = size_t(channels); break;
    case Code::window: least = 4 + size_t(channels); break;
    default: break;
  }
  const bool per_channel = op.code == Code::lut && op.constants.size() != 256 && op.constants.size() != 768;
  if (op.constants.size() < least || per_channel) throw std::invalid_argument("an op lacks constants");
  for (const Layer& layer : op.chain)
    for (const Op& each : layer.ops) check_constants(each, channels);
}

Program program_of(const nb::dict& fields) {
  Program program;
  const auto integer = [&](const char* name) { return nb::cast<int64_t>(fields[name]); };
  program.encoded = nb::cast<bool>(fields["encoded"]);
  program.height = int(integer("height")), program.width = int(integer("width"));
  program.out_height = int(integer("out_height")), program.out_width = int(integer("out_width"));
  program.channels = int(integer("channels"));
  program.views = int(integer("views"));
  program.whole = nb::cast<bool>(fields["whole"]);
  const int64_t filter = integer("filter"), mode = integer("border");
  if (program.height < 1 || program.width < 1 || program.out_height < 1 || program.out_width < 1 || (program.channels != 1 && program.channels != 3) ||
      program.views < 1 || filter < 0 || filter > 3 || mode < 0 || mode > 3 || (program.encoded && program.channels != 3))
    throw std::invalid_argument("a program needs a size, 1 or 3 channels, a filter and a border");
  program.filter = Filter(int(filter));
  program.limits.max_pixels = integer("max_pixels");
  program.limits.enlarge = nb::cast<double>(fields["enlarge"]);
  program.border.mode = Border::Mode(int(mode));
  const auto fill = nb::cast<nb::tuple>(fields["fill"]);
  for (int c = 0; c < program.channels; ++c) program.border.fill[c] = uint8_t(nb::cast<int>(fill[size_t(c)]));
  for (nb::handle layer : nb::cast<nb::tuple>(fields["layers"])) {
    program.layers.emplace_back();
    for (nb::handle each : nb::cast<nb::tuple>(layer)) {
      program.layers.back().ops.push_back(op_of(each));
      check_constants(program.layers.back().ops.back(), program.channels);
    }
  }
  if (fields.contains("wait_ns")) program.wait_ns = integer("wait_ns");
  Conversion& conversion = program.conversion;
  conversion.planar = nb::cast<bool>(fields["planar"]);
  if (!fields["table"].is_none()) {
    const auto table = nb::cast<nb::bytes>(fields["table"]);
    conversion.entry = int(table.size() / (256 * size_t(program.channels)));
    if ((conversion.entry != 2 && conversion.entry != 4) || table.size() != 256 * size_t(program.channels * conversion.entry))
      throw std::invalid_argument("a table must be (256, channels) of 2 or 4 bytes");
    const auto* data = reinterpret_cast<const uint8_t*>(table.c_str());
    conversion.table.assign(data, data + table.size());
  }
  if (!fields["noise"].is_none()) {  // the tables live as long as the process
    const auto parts = nb::cast<nb::tuple>(fields["noise"]);
    const auto steps = nb::cast<Steps>(parts[0]);
    const auto gray = nb::cast<Text>(parts[1]);
    same_length(steps.shape(0), gray.shape(0), "gray", "step");
    program.noise = {steps.data(), gray.data(), int64_t(steps.shape(0)), nb::cast<int>(parts[2])};
  }
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
