#include "pool.h"

#include <algorithm>

#include "kernel.h"

namespace fastfeed {
namespace {

constexpr size_t kHeldBytes = size_t(1) << 30;

struct Purse {
  std::mutex mutex;
  std::condition_variable change;
  size_t used = 0;
};

Purse& purse() {
  static Purse* one = new Purse;  // never destroyed: threads may still hold something at exit
  return *one;
}

}  // namespace

Admission::Admission(size_t bytes) : bytes_(bytes) {
  if (!bytes_) return;
  std::unique_lock<std::mutex> lock(purse().mutex);
  purse().change.wait(lock, [this] { return !purse().used || purse().used + bytes_ <= kHeldBytes; });
  purse().used += bytes_;
}

Admission::~Admission() {
  if (!bytes_) return;
  {
    std::lock_guard<std::mutex> lock(purse().mutex);
    purse().used -= bytes_;
  }
  purse().change.notify_all();
}

struct Pool::Run {
  const std::function<void(Worker&, int)>* task;
  int n;
  std::atomic<int> next{0}, done{0};
  std::atomic<bool> cancelled{false};
  std::mutex mutex;
  std::condition_variable finished;
};

Pool::Pool(int threads) {
  for (int i = 1; i < threads; ++i) threads_.emplace_back([this] { loop(); });
}

Pool::~Pool() {
  {
    std::lock_guard<std::mutex> lock(mutex_);
    closed_ = true;
    for (auto& run : runs_) run->cancelled = true;
  }
  more_.notify_all();
  for (auto& thread : threads_) thread.join();
}

void Pool::cancel() {
  std::lock_guard<std::mutex> lock(mutex_);
  for (auto& run : runs_) run->cancelled = true;
}

Worker* Pool::borrow() {
  std::lock_guard<std::mutex> lock(mutex_);
  if (idle_.empty()) {
    workers_.push_back(std::make_unique<Worker>());
    return workers_.back().get();
  }
  Worker* worker = idle_.back();
  idle_.pop_back();
  return worker;
}

void Pool::give_back(Worker* worker) {
  std::lock_guard<std::mutex> lock(mutex_);
  idle_.push_back(worker);
}

void Pool::work(Run& run, Worker& worker) {
  for (int i; (i = run.next.fetch_add(1)) < run.n;) {
    if (!run.cancelled) (*run.task)(worker, i);
    if (run.done.fetch_add(1) + 1 == run.n) {
      std::lock_guard<std::mutex> lock(run.mutex);
      run.finished.notify_all();
    }
  }
}

void Pool::run(int n, const std::function<void(Worker&, int)>& task) {
  if (n <= 0) return;
  auto run = std::make_shared<Run>();
  run->task = &task;
  run->n = n;
  {
    std::lock_guard<std::mutex> lock(mutex_);
    runs_.push_back(run);
  }
  if (n > 1 && !threads_.empty()) more_.notify_all();
  Worker* worker = borrow();
  work(*run, *worker);
  give_back(worker);
  {
    std::unique_lock<std::mutex> lock(run->mutex);
    run->finished.wait(lock, [&] { return run->done.load() >= run->n; });
  }
  std::lock_guard<std::mutex> lock(mutex_);
  runs_.erase(std::find(runs_.begin(), runs_.end(), run));
}

void Pool::loop() {
  Worker* worker = borrow();
  std::unique_lock<std::mutex> lock(mutex_);
  for (;;) {
    std::shared_ptr<Run> run;
    for (auto& candidate : runs_)
      if (candidate->next.load() < candidate->n) {
        run = candidate;
        break;
      }
    if (closed_) break;
    if (!run) {
      more_.wait(lock);
      continue;
    }
    lock.unlock();
    work(*run, *worker);
    run.reset();
    lock.lock();
  }
}

}  // namespace fastfeed
