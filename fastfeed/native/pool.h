// Threads that stay, and a common purse for the memory that progressive files need.
#pragma once

#include <atomic>
#include <condition_variable>
#include <cstddef>
#include <functional>
#include <memory>
#include <mutex>
#include <thread>
#include <vector>

namespace fastfeed {

class Worker;

// Holds `bytes` of what all threads may hold at once; waits for room. Something larger than all of it waits until it is
// alone.
class Admission {
 public:
  explicit Admission(size_t bytes);
  ~Admission();
  Admission(const Admission&) = delete;
  Admission& operator=(const Admission&) = delete;

 private:
  size_t bytes_;
};

class Pool {
 public:
  explicit Pool(int threads);
  ~Pool();  // waits for the images being decoded, not for those that wait
  Pool(const Pool&) = delete;
  Pool& operator=(const Pool&) = delete;

  // Call task(worker, i) for every i < n, by the caller and the pool's threads; returns when all are done. After
  // cancel(), tasks that have not begun are not called.
  void run(int n, const std::function<void(Worker&, int)>& task);
  void cancel();  // the runs that are going on now
  int size() const { return int(threads_.size()) + 1; }

 private:
  struct Run;
  void loop();
  static void work(Run& run, Worker& worker);
  Worker* borrow();
  void give_back(Worker* worker);

  std::mutex mutex_;
  std::condition_variable more_;
  std::vector<std::shared_ptr<Run>> runs_;
  std::vector<std::unique_ptr<Worker>> workers_;
  std::vector<Worker*> idle_;
  std::vector<std::thread> threads_;
  bool closed_ = false;
};

}  // namespace fastfeed
