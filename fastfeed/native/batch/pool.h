// A persistent thread pool.
#pragma once

#include <atomic>
#include <functional>

namespace fastfeed {

class Worker;

// The threads start with the first run. In a forked child, whose threads and locks are not to be trusted, a pool is
// recreated at its next use, and the old one is leaked.
class Pool {
 public:
  explicit Pool(int threads);
  ~Pool();  // cancels active runs and waits for the images being decoded
  Pool(const Pool&) = delete;
  Pool& operator=(const Pool&) = delete;

  // Call task(worker, i) for every i < n, by the caller and the pool's threads; returns when all are done. After
  // cancel(), tasks that have not begun are not called. An exception from a task cancels the rest and is rethrown here.
  void run(int n, const std::function<void(Worker&, int)>& task);
  // The same by the pool's threads alone, in order of the runs, urgent ones first. The caller waits, and asks `stopped` now and then
  // whether to cancel this run; an exception from it cancels the run too and is rethrown at its end.
  void run_behind(int n, const std::function<void(Worker&, int)>& task, const std::function<bool()>& stopped,
                  bool urgent = false);
  void cancel();  // cancels active runs
  int size() const { return threads_; }

 private:
  class State;
  State& state();

  const int threads_;
  std::atomic<State*> state_;
};

}  // namespace fastfeed
