// The call that makes the rows of a batch.
#include <algorithm>
#include <cstring>
#include <new>
#include <optional>
#include <stdexcept>

#include <nanobind/stl/optional.h>

#include "bindings/calls.h"
#include "batch/mixing.h"
#include "system/system.h"

namespace fastfeed {
namespace {

constexpr int kMostFiles = 8, kMostPixels = 32;  // samples that a thread takes at a time

// The array that samples are written to: any dtype, each sample contiguous.
class Out {
 public:
  Out(const Rows& out, size_t samples, size_t sample_bytes) : base_(static_cast<uint8_t*>(out.data())) {
    if (out.ndim() < 1 || out.shape(0) != samples) throw std::invalid_argument("out needs a row per sample");
    if (reinterpret_cast<uintptr_t>(base_) % out.itemsize()) throw std::invalid_argument("out must be aligned");
    stride_ = ptrdiff_t(out.stride(0)) * ptrdiff_t(out.itemsize());
    int64_t numbers = 1;  // of a sample
    for (size_t k = out.ndim(); k-- > 1; numbers *= int64_t(out.shape(k)))
      if (out.shape(k) != 1 && out.stride(k) != numbers) throw std::invalid_argument("a sample of out must be contiguous");
    if (size_t(numbers) * out.itemsize() != sample_bytes) throw std::invalid_argument("out is not what the program makes");
  }
  uint8_t* row(size_t k) const { return base_ + ptrdiff_t(k) * stride_; }

 private:
  uint8_t* const base_;
  ptrdiff_t stride_;
};

// Calls task(worker, k, spent) for every sample, in chunks so small that all threads have work to the end. spans:
// thread, begin, and nanoseconds of decoding, ops and conversion, per chunk. Returns the number of chunks.
template <class Task>
int in_chunks(Executor& executor, size_t n, int most, Spans spans, const nb::object& stop, const Task& task) {
  const size_t chunk = std::clamp<size_t>(n / (size_t(executor.threads()) * 8), 1, size_t(most));
  const size_t chunks = (n + chunk - 1) / chunk;
  std::memset(spans.data(), 0, chunks * 5 * sizeof(int64_t));
  executor.run(int(chunks), [&, span = spans.data()](Worker& worker, int c) {
    Spent spent;
    spent.begin = clock_ns();
    const size_t last = std::min(n, size_t(c + 1) * chunk);
    for (size_t k = size_t(c) * chunk; k < last && !worker.stopped->load(); ++k) task(worker, k, spent);
    const int64_t own[5] = {thread_id(), spent.begin, spent.decode, spent.augment, spent.convert};
    std::copy_n(own, 5, span + 5 * c);
  }, stop);
  return int(chunks);
}

nb::tuple pair_of(nb::handle entry) {
  auto pair = nb::cast<nb::tuple>(entry);
  if (pair.size() != 2) throw std::invalid_argument("values must be pairs");
  return pair;
}

// Checks the shapes of a call's parameters against the program, recursively.
LayerValues values_of(const Layer& layer, nb::handle entry, size_t rows) {
  const auto parts = pair_of(entry);
  const auto choice = nb::cast<Ids>(parts[0], false);
  same_length(rows, choice.shape(0), "choice", "row");
  LayerValues values;
  values.choice = choice.data();
  for (size_t i = 0; i < rows; ++i)
    if (values.choice[i] >= int64_t(layer.ops.size())) throw std::out_of_range("a choice is not in its layer");
  const auto ops = nb::cast<nb::tuple>(parts[1]);
  same_length(layer.ops.size(), nb::len(ops), "values", "op");
  for (size_t k = 0; k < layer.ops.size(); ++k) {
    const Op& op = layer.ops[k];
    const auto of_op = pair_of(ops[k]);
    OpValues own;
    if (op.numbers) {
      const auto numbers = nb::cast<Numbers>(of_op[0], false);
      if (numbers.size() != rows * size_t(op.numbers)) throw std::invalid_argument("an op has other numbers per row");
      own.numbers = numbers.data();
    }
    if (op.code == Code::augmix) {
      const auto chains = nb::cast<nb::tuple>(of_op[1]);
      same_length(size_t(op.versions) * op.chain.size(), nb::len(chains), "chains", "version and layer");
      for (size_t j = 0; j < nb::len(chains); ++j)
        own.chains.push_back(values_of(op.chain[j % op.chain.size()], chains[j], rows));
    }
    values.ops.push_back(std::move(own));
  }
  return values;
}

// Fills out[k] for every sample k that is not skipped; codes[k]: its Status, `cancelled` where nothing was done.
// spans: thread, begin, and nanoseconds of decoding, ops and conversion, per chunk of samples.
int render(Executor& executor, const Program& program, const SampleList& list, Flags skip, std::optional<Boxes> boxes,
           std::optional<Flips> flips, std::optional<Boxes> limits, const nb::tuple& layers, Rows out, Codes codes,
           Spans spans, nb::object stop, std::optional<Ids> filters) {
  const size_t n = list.samples.size(), views = size_t(program.views), rows = n * views;
  for (size_t got : {skip.shape(0), codes.shape(0), spans.shape(0)}) same_length(n, got, "an argument", "sample");
  Values values;
  const size_t window = size_t(program.height) * size_t(program.width) * size_t(program.channels);
  if (boxes && flips) {
    same_length(rows, boxes->shape(0), "boxes", "row");
    same_length(rows, flips->shape(0), "flips", "row");
    if (limits) same_length(rows, limits->shape(0), "limits", "row");
    values.boxes = boxes->data(), values.flips = flips->data(), values.limits = limits ? limits->data() : nullptr;
  } else if (program.encoded) {
    throw std::invalid_argument("encoded samples need boxes and flips");
  }
  if (filters) {
    same_length(rows, filters->shape(0), "filters", "row");
    values.filters = filters->data();
    for (size_t k = 0; k < rows; ++k)
      if (values.filters[k] < 0 || values.filters[k] >= kFilters || !(program.enlarge_by_filter[values.filters[k]] > 0))
        throw std::out_of_range("a filter is not in the program");
  }
  for (size_t k = 0; k < n; ++k) {
    const Sample& sample = list.samples[k];
    const size_t whole = size_t(sample.height) * size_t(sample.width) * size_t(program.channels);
    const size_t least = values.boxes ? std::max(whole, size_t(1)) : window * views;
    if (!skip.data()[k] && !program.encoded && sample.size < least) throw std::invalid_argument("a sample lacks pixels");
  }
  same_length(program.layers.size(), nb::len(layers), "layers", "layer of the program");
  for (size_t k = 0; k < program.layers.size(); ++k)
    values.layers.push_back(values_of(program.layers[k], layers[k], rows));
  const Out target(out, n, program.out_bytes() * views);
  int8_t* code = codes.data();
  std::memset(code, int(Status::cancelled), n);
  const int most = program.encoded ? kMostFiles : kMostPixels;
  return in_chunks(executor, n, most, spans, stop, [&](Worker& worker, size_t k, Spent& spent) {
    if (skip.data()[k]) return;
    try {
      const Sample& sample = list.samples[k];
      code[k] = int8_t(run_sample(program, values, k, sample, target.row(k), program.out_bytes(), worker, spent));
    } catch (const std::bad_alloc&) {
      code[k] = int8_t(Status::no_memory);
    }
  });
}

using Groups = nb::ndarray<const int64_t, nb::ndim<2>, nb::c_contig, nb::device::cpu>;
using Shares = nb::ndarray<const double, nb::ndim<2>, nb::c_contig, nb::device::cpu>;

// out[k] is made of the rows of `samples` in members[k]; spans as in `render`, all of it mixing.
int mix(Executor& executor, const Program& program, Bytes samples, Groups members, Ids how, Shares shares, Groups box,
        Rows out, Spans spans, nb::object stop) {
  const size_t n = members.shape(0), group = members.shape(1);
  for (size_t got : {how.shape(0), shares.shape(0), box.shape(0), spans.shape(0)})
    same_length(n, got, "an argument", "sample");
  const size_t window = size_t(program.out_height) * size_t(program.out_width) * size_t(program.channels);
  if (shares.shape(1) != group || box.shape(1) != 4 || samples.ndim() < 1 || samples.size() != samples.shape(0) * window)
    throw std::invalid_argument("members, shares, boxes and samples do not fit each other");
  const int64_t height = program.out_height, width = program.out_width;
  for (size_t k = 0; k < n; ++k) {
    const int64_t *b = box.data() + 4 * k, kind = how.data()[k];
    const size_t need = kind == int64_t(Mix::mosaic) ? 4 : kind == int64_t(Mix::as_is) ? 1 : 2;
    if (kind < 0 || kind > 3 || group < need) throw std::invalid_argument("how must be in [0, 3], with as many members");
    for (size_t j = 0; j < group; ++j)
      if (members.data()[k * group + j] < 0 || size_t(members.data()[k * group + j]) >= samples.shape(0))
        throw std::out_of_range("a member is not in samples");
    if (kind >= 2 && (b[0] < 0 || b[1] < 0 || b[2] < 0 || b[3] < 0 || b[0] > height || b[1] > width ||
                      b[2] > height - b[0] || b[3] > width - b[1]))
      throw std::out_of_range("a box lies outside of its image");
    const double share = kind == int64_t(Mix::blend) ? shares.data()[k * group] : 0;
    if (!(share >= 0 && share <= 1)) throw std::out_of_range("shares must be in [0, 1]");
  }
  const Out target(out, n, program.out_bytes());
  const MixPlan plan{samples.data(), members.data(), how.data(), shares.data(), box.data(), group};
  return in_chunks(executor, n, kMostPixels, spans, stop, [&](Worker& worker, size_t k, Spent& spent) {
    mix_sample(program, plan, k, target.row(k), worker.scratch);
    spent.convert = clock_ns() - spent.begin;
  });
}

}  // namespace

void bind_render(nb::class_<Executor>& executor) {
  executor.def("render", &render, nb::arg("program"), nb::arg("samples"), nb::arg("skip").noconvert(),
               nb::arg("boxes").noconvert().none(), nb::arg("flips").noconvert().none(),
               nb::arg("limits").noconvert().none(), nb::arg("layers"), nb::arg("out").noconvert(),
               nb::arg("codes").noconvert(), nb::arg("spans").noconvert(), nb::arg("stop"),
               nb::arg("filters").noconvert().none() = nb::none());
  executor.def("mix", &mix, nb::arg("program"), nb::arg("samples").noconvert(), nb::arg("members").noconvert(),
               nb::arg("how").noconvert(), nb::arg("shares").noconvert(), nb::arg("box").noconvert(),
               nb::arg("out").noconvert(), nb::arg("spans").noconvert(), nb::arg("stop"));
}

void bind_executor(nb::module_& m) {
  bind_locations(m);
  bind_program(m);
  nb::class_<Executor> executor(m, "Executor");
  executor.def(nb::init<int, bool>(), nb::arg("threads"), nb::arg("callers_work") = false)
      .def_prop_ro("threads", &Executor::threads);
  bind_samples(executor, m);
  bind_render(executor);
}

}  // namespace fastfeed
