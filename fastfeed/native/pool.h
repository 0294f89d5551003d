// Threads that stay, and a common purse for the memory that progressive files need.
#pragma once

#include <atomic>
#include <cstddef>
#include <functional>

namespace fastfeed {

class Worker;

// Holds `bytes` of what all threads may hold at once; waits for room, first come, first served, so that something large
// is not kept waiting for ever. Something larger than all of it waits until it is alone.
class Admission {
 public:
  explicit Admission(size_t bytes);
  ~Admission();
  Admission(const Admission&) = delete;
  Admission& operator=(const Admission&) = delete;

 private:
  size_t bytes_;
};

// In a forked child, whose threads and locks are not to be trusted, a pool begins anew at its next use, and what it was
// is left alone.
class Pool {
 public:
  explicit Pool(int threads);
  ~Pool();  // cancels the runs that are going on and waits for them, that is for the images being decoded
  Pool(const Pool&) = delete;
  Pool& operator=(const Pool&) = delete;

  // Call task(worker, i) for every i < n, by the caller and the pool's threads; returns when all are done. After
  // cancel(), tasks that have not begun are not called. What a task throws cancels the rest and is thrown again here.
  void run(int n, const std::function<void(Worker&, int)>& task);
  void cancel();  // the runs that are going on now
  int size() const { return threads_; }

 private:
  class State;
  State& state();

  const int threads_;
  std::atomic<State*> state_;
};

}  // namespace fastfeed
