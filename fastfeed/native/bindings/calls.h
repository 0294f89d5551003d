// The Python objects of the executor: its threads, and the samples of a call.
#pragma once

#include <atomic>
#include <chrono>
#include <deque>
#include <functional>
#include <memory>
#include <stdexcept>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "bindings/bindings.h"
#include "batch/executor.h"
#include "system/finalizing.h"
#include "batch/pool.h"

namespace fastfeed {

using Ids = nb::ndarray<const int64_t, nb::shape<-1>, nb::c_contig, nb::device::cpu>;
using Sides = nb::ndarray<const int64_t, nb::shape<-1, 2>, nb::c_contig, nb::device::cpu>;
using Handles = nb::ndarray<const int32_t, nb::shape<-1>, nb::c_contig, nb::device::cpu>;
using Text = nb::ndarray<const uint8_t, nb::shape<-1>, nb::c_contig, nb::device::cpu>;
using Ends = nb::ndarray<nb::ro, nb::c_contig, nb::device::cpu>;  // int32 or int64
using Flags = nb::ndarray<const bool, nb::shape<-1>, nb::c_contig, nb::device::cpu>;
using Numbers = nb::ndarray<const double, nb::c_contig, nb::device::cpu>;
using Pixels = nb::ndarray<const uint8_t, nb::ndim<4>, nb::c_contig, nb::device::cpu>;
using Bytes = nb::ndarray<const uint8_t, nb::c_contig, nb::device::cpu>;
using Steps = nb::ndarray<const int16_t, nb::shape<-1>, nb::c_contig, nb::device::cpu>;
using Rows = nb::ndarray<nb::device::cpu>;
using Spans = nb::ndarray<int64_t, nb::shape<-1, 5>, nb::c_contig, nb::device::cpu>;

// Where the samples of a call lie, and what owns the memory and the files that they lie in.
struct Locations {
  std::vector<Location> all;
  std::deque<Names> names;  // that locations point at, and the arrays that these point at
  std::vector<std::pair<Text, Ends>> arrays;
  std::deque<std::string> features;
  std::vector<nb::object> owners;
};

// Samples of one call, and what owns their bytes.
struct SampleList {
  SampleList() = default;
  SampleList(const SampleList&) = delete;
  SampleList& operator=(const SampleList&) = delete;

  std::vector<Sample> samples;
  std::shared_ptr<Buffers> buffers;
  std::vector<Buffers::Buffer> memory;
  std::vector<nb::object> owners;  // of borrowed bytes: Python objects that hold a buffer

  // With the GIL; the object is one that has a buffer.
  void borrow(size_t i, nb::handle object);
};

// Threads that make batches, several at a time.
class Executor {
 public:
  // callers_work: the thread that calls works too, as one of `threads`; it does not ask `stop`.
  Executor(int threads, bool callers_work)
      : threads_(checked(threads)), callers_work_(callers_work), pool_(callers_work ? threads : threads + 1),
        buffers_(new std::shared_ptr(std::make_shared<Buffers>())) {}
  ~Executor() { delete buffers_.load(); }

  int threads() const { return threads_; }
  // For several threads at once. In a forked child those of the parent are leaked, since a thread may have left them
  // locked; for the same reason there is no lock here.
  std::shared_ptr<Buffers> buffers() {
    std::shared_ptr<Buffers>* held = buffers_.load();
    if (!(*held)->are_own()) {
      auto own = std::make_unique<std::shared_ptr<Buffers>>(std::make_shared<Buffers>());
      if (buffers_.compare_exchange_strong(held, own.get())) held = own.release();  // else another thread was first
    }
    return *held;
  }

  // Calls task(worker, i) for every i < n without the GIL; `stop` is an object with is_set(), or a CancelToken, whose
  // flags are read without the GIL. Once that is set, tasks that have not begun are left out, and those under way find
  // worker.stopped set. Urgent tasks are taken first.
  void run(int n, const std::function<void(Worker&, int)>& task, nb::handle stop, bool urgent = false) {
    const bool at_exit = is_finalizing();  // in the thread that finalizes: no other one gets the GIL any more
    const nb::object flags = nb::getattr(stop, "flags", nb::none());
    const std::vector<const char*> bytes = flags_of(flags);
    const GilRelease release;
    std::atomic<bool> stopped{false};
    const auto ask = [&] {
      if (is_finalizing() && !at_exit) return stopped = true;
      if (!bytes.empty()) {
        for (const char* byte : bytes)
          if (*const_cast<const volatile char*>(byte)) stopped = true;
        return stopped.load();
      }
      const GilAcquire acquire;
      try {
        if (nb::cast<bool>(stop.attr("is_set")())) stopped = true;
      } catch (...) {  // such as Ctrl-C
        stopped = true;
        throw;
      }
      return stopped.load();
    };
    const auto watched = [&](Worker& worker, int i) {
      worker.stopped = &stopped;
      const std::unique_ptr<Worker, void (*)(Worker*)> reset(&worker, [](Worker* w) { w->stopped = nullptr; });
      task(worker, i);
    };
    if (callers_work_) pool_.run(n, watched);
    else pool_.run_behind(n, watched, ask, urgent);
    // a daemon thread that asked for the GIL now would be ended in the middle of this call, and the process with it
    while (is_finalizing() && !at_exit) std::this_thread::sleep_for(std::chrono::hours(1));
  }

 private:
  // The bytes of a CancelToken's flags, a tuple of bytearrays; none of another object.
  static std::vector<const char*> flags_of(const nb::object& flags) {
    std::vector<const char*> bytes;
    if (!flags.is_none())
      for (nb::handle flag : nb::cast<nb::tuple>(flags)) {
        if (!PyByteArray_Check(flag.ptr()) || PyByteArray_Size(flag.ptr()) != 1) throw std::invalid_argument("a flag is one byte");
        bytes.push_back(PyByteArray_AsString(flag.ptr()));
      }
    return bytes;
  }

  static int checked(int threads) {
    if (threads < 1 || threads > 4096) throw std::invalid_argument("threads must be in [1, 4096]");
    return threads;
  }

  const int threads_;
  const bool callers_work_;
  Pool pool_;
  std::atomic<std::shared_ptr<Buffers>*> buffers_;  // replaced once after a fork, never deleted while in use
};

void bind_samples(nb::class_<Executor>& executor, nb::module_& m);
void bind_locations(nb::module_& m);
void bind_program(nb::module_& m);
void bind_render(nb::class_<Executor>& executor);

}  // namespace fastfeed
