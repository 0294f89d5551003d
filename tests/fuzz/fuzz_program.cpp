// libFuzzer target: a program of the executor, as random as its bytes, run on pixels or on a file. The first two bytes
// say how many bytes describe the program and the numbers of a sample, at most; the rest is the file.
//
// Half of the programs are sound. The others ask for what Python never should: numbers that are infinite or not numbers,
// windows outside of the image, modes and sizes that do not exist. They may be refused by an exception.
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <memory>
#include <new>
#include <stdexcept>
#include <string>
#include <vector>

#include "batch/checks.h"
#include "batch/executor.h"
#include "expect.h"
#include "system/instruction_sets.h"
#include "random_program.h"

using namespace fastfeed;

namespace {

// The status, or the exception; rows in `out`, which is filled with `before`.
std::string run(const Case& all, const Sample& sample, Worker& worker, uint8_t before, std::vector<uint8_t>& out) {
  const size_t row = all.program.out_bytes();
  out.assign(row * size_t(all.program.views), before);
  Spent spent;
  try {
    const Status status = run_sample(all.program, all.values, 0, sample, out.data(), row, worker, spent);
    return std::to_string(int(status));
  } catch (const std::bad_alloc&) {
    return "bad_alloc";
  } catch (const std::logic_error& error) {  // what Python asked for is wrong
    expect(dynamic_cast<const std::length_error*>(&error) == nullptr, "no size is computed wrongly");
    return error.what();
  }
}

void describe(const std::vector<Layer>& layers, const std::vector<LayerValues>& values, const char* indent) {
  for (size_t k = 0; k < layers.size(); ++k) {
    const int64_t choice = values[k].choice[0];
    std::fprintf(stderr, "%slayer %zu: ", indent, k);
    if (choice < 0) {
      std::fprintf(stderr, "nothing\n");
      continue;
    }
    const Op& op = layers[k].ops[size_t(choice)];
    for (const auto& [name, kind] : kinds())
      if (kind.code == op.code) std::fprintf(stderr, "%s, numbers", name.c_str());
    for (int i = 0; i < op.numbers; ++i) std::fprintf(stderr, " %.9g", values[k].ops[size_t(choice)].numbers[i]);
    std::fprintf(stderr, ", constants");
    for (size_t i = 0; i < std::min<size_t>(op.constants.size(), 8); ++i) std::fprintf(stderr, " %g", op.constants[i]);
    std::fprintf(stderr, "\n");
    if (op.chain.empty()) continue;
    const std::vector<LayerValues>& chains = values[k].ops[size_t(choice)].chains;
    for (size_t j = 0; j < chains.size(); j += op.chain.size())
      describe(op.chain, {chains.begin() + ptrdiff_t(j), chains.begin() + ptrdiff_t(j + op.chain.size())}, "    ");
  }
}

// What a finding is about.
void describe(const Case& all, const Sample& sample, const std::string& set) {
  const Program& p = all.program;
  std::fprintf(stderr, "against %s: %s of %d x %d, %d channels, %d views%s to %d x %d, filter %d, border %d, entry %d%s\n",
               set.c_str(), p.encoded ? "file" : "pixels", sample.height, sample.width, p.channels, p.views,
               p.whole ? " of the whole" : "", p.height, p.width, int(p.filter), int(p.border.mode), p.conversion.entry(),
               p.conversion.planar ? ", planar" : "");
  for (size_t i = 0; i < all.boxes.size(); ++i)
    std::fprintf(stderr, "%s%.9g%s", i % 4 ? " " : "box ", all.boxes[i], i % 4 == 3 ? "\n" : "");
  describe(p.layers, all.values.layers, "  ");
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* input, size_t size) {
  if (size < 3) return 0;
  const size_t described = std::min(size - 2, size_t(input[0]) << 8 | input[1]);
  Ask ask(input + 2, described);
  Case all;
  const int kind = ask.byte();
  ask.wild = kind & 1;
  all.program.encoded = kind & 2;
  all.program.channels = !all.program.encoded && kind & 4 ? 1 : 3;
  Sample sample;
  std::vector<uint8_t> bytes;
  if (all.program.encoded) {
    bytes.assign(input + 2 + described, input + size);
    sample.data = bytes.data(), sample.size = bytes.size();
    all.program.limits.max_pixels = 1 << 20;
    probe(sample, all.program.limits);
  } else {
    sample.height = ask.whole(1, 2 * kSide), sample.width = ask.whole(1, 2 * kSide);
    sample.status = Status::ok;
  }
  make(ask, sample, all);
  const Program& program = all.program;
  if (!program.encoded) {  // as the binding demands
    const size_t views = all.values.boxes ? 1 : size_t(program.views);
    bytes.resize(size_t(sample.height) * size_t(sample.width) * size_t(program.channels) * views);
    uint32_t state = uint32_t(ask.byte());
    const int kind_of_pixels = ask.byte() & 3;
    for (uint8_t& each : bytes) {
      state = state * 1664525 + 1013904223;
      each = uint8_t(kind_of_pixels == 0 ? state >> 24 : kind_of_pixels == 1 ? (state >> 31) * 255
                     : kind_of_pixels == 2 ? 128 : (&each - bytes.data()) * 3);
    }
    sample.data = bytes.data(), sample.size = bytes.size();
  }
  try {
    check(program);
  } catch (const std::invalid_argument&) {
    expect(ask.wild, "only wild programs are refused");
    return 0;
  }
  if (program.out_bytes() * size_t(program.views) > size_t(1) << 24) return 0;

  static const std::vector<std::string> sets = instruction_sets();
  static Worker kept;
  std::vector<uint8_t> out, again;
  const std::string status = run(all, sample, kept, 0xA5, out);
  if (!ask.wild) expect(status.size() == 1, "a sound program makes no exception");
  // a fresh worker, another filling, another instruction set: no byte depends on any of them
  const std::string& other = sets[size_t(ask.byte()) % sets.size()];
  use_instruction_set(other);
  Worker fresh;
  const std::string status_again = run(all, sample, fresh, 0x5A, again);
  use_instruction_set("");
  if (status != status_again || (status == "0" && out != again)) describe(all, sample, other);
  expect(status == status_again, "every instruction set gives the same status");
  if (status == "0") expect(out == again, "every instruction set gives the same bytes");
  return 0;
}
