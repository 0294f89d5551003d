#include "batch/pool.h"

#include <algorithm>
#include <atomic>
#include <chrono>
#include <condition_variable>
#include <cstdint>
#include <exception>
#include <memory>
#include <mutex>
#include <system_error>
#include <thread>
#include <utility>
#include <vector>

#include "decode/worker.h"
#include "system/system.h"

namespace fastfeed {
namespace {

constexpr std::chrono::milliseconds kAskAfter(50);  // how often a waiting caller looks whether it should stop

}  // namespace

class Pool::State {
 public:
  explicit State(int threads) : pid(process_id()) {
    idle_.reserve(size_t(threads));
    threads_.reserve(size_t(threads));
    for (int i = 0; i < threads; ++i) {  // here, where running out of memory can be said
      workers_.push_back(std::make_unique<Worker>());
      if (i == 0) idle_.push_back(workers_.back().get());
    }
    try {
      for (int i = 1; i < threads; ++i) threads_.emplace_back([this, own = workers_[size_t(i)].get()] { loop(*own); });
    } catch (const std::system_error&) {  // no more threads available: the existing ones and the caller do the work
    }
  }

  ~State() {
    {
      std::unique_lock<std::mutex> lock(mutex_);
      closed_ = true;
      for (auto& run : runs_) run->cancelled = true;
      more_.notify_all();
      gone_.wait(lock, [this] { return runs_.empty(); });
    }
    for (auto& thread : threads_) thread.join();
  }

  void cancel() {
    std::lock_guard<std::mutex> lock(mutex_);
    for (auto& run : runs_) run->cancelled = true;
  }

  // `stopped`: null where the caller works too.
  void run(int n, const std::function<void(Worker&, int)>& task, const std::function<bool()>* stopped, bool urgent) {
    auto run = std::make_shared<Run>();
    run->task = &task;
    run->n = n;
    run->urgent = urgent;
    Worker* worker = nullptr;
    {
      std::lock_guard<std::mutex> lock(mutex_);
      if (!stopped || threads_.empty()) worker = borrow();
      const auto later = [](const std::shared_ptr<Run>& other) { return !other->urgent; };
      runs_.insert(urgent ? std::find_if(runs_.begin(), runs_.end(), later) : runs_.end(), run);
      if (n > 1 || !worker) more_.notify_all();
    }
    if (worker) work(*run, *worker);
    {
      std::unique_lock<std::mutex> lock(run->mutex);
      const auto finished = [&] { return run->done.load() >= run->n; };
      while (!run->finished.wait_for(lock, kAskAfter, finished)) {
        if (!stopped || run->cancelled) continue;
        lock.unlock();
        try {
          if ((*stopped)()) run->cancelled = true;
        } catch (...) {  // threads still work on what the caller owns: it is rethrown after them
          run->fail(std::current_exception());
        }
        lock.lock();
      }
    }
    {
      // the last access to the pool here, which may be destroyed as soon as the lock is released
      std::lock_guard<std::mutex> lock(mutex_);
      if (worker) idle_.push_back(worker);
      runs_.erase(std::find(runs_.begin(), runs_.end(), run));
      gone_.notify_all();
    }
    // taken out, so that it is not destroyed in the thread that releases the run last
    const std::exception_ptr error = std::move(run->error);
    if (error) std::rethrow_exception(error);
  }

  const int64_t pid;

 private:
  struct Run {
    const std::function<void(Worker&, int)>* task;
    int n;
    bool urgent;  // taken before those that are not
    std::atomic<int> next{0}, done{0};
    std::atomic<bool> cancelled{false};
    std::mutex mutex;
    std::condition_variable finished;
    std::exception_ptr error;

    void fail(std::exception_ptr why) {
      std::lock_guard<std::mutex> lock(mutex);
      if (!error) error = std::move(why);
      cancelled = true;
    }
  };

  // With the lock held.
  Worker* borrow() {
    if (idle_.empty()) {
      idle_.reserve(workers_.size() + 1);  // so that giving back cannot fail
      workers_.push_back(std::make_unique<Worker>());
      return workers_.back().get();
    }
    Worker* worker = idle_.back();
    idle_.pop_back();
    return worker;
  }

  static void work(Run& run, Worker& worker) {
    for (int i; (i = run.next.fetch_add(1)) < run.n;) {
      try {
        if (!run.cancelled) (*run.task)(worker, i);
      } catch (...) {
        run.fail(std::current_exception());
      }
      if (run.done.fetch_add(1) + 1 == run.n) {
        std::lock_guard<std::mutex> lock(run.mutex);
        run.finished.notify_all();
      }
    }
  }

  void loop(Worker& worker) {
    std::unique_lock<std::mutex> lock(mutex_);
    for (;;) {
      std::shared_ptr<Run> run;
      for (auto& candidate : runs_)
        if (candidate->next.load() < candidate->n) {
          run = candidate;
          break;
        }
      if (!run) {
        if (closed_) return;  // not before: of runs that are canceled now, callers wait for every task
        more_.wait(lock);
        continue;
      }
      lock.unlock();
      work(*run, worker);
      run.reset();
      lock.lock();
    }
  }

  std::mutex mutex_;
  std::condition_variable more_, gone_;
  std::vector<std::shared_ptr<Run>> runs_;
  std::vector<std::unique_ptr<Worker>> workers_;
  std::vector<Worker*> idle_;
  std::vector<std::thread> threads_;
  bool closed_ = false;
};

Pool::Pool(int threads) : threads_(std::max(threads, 1)), state_(nullptr) {}

Pool::~Pool() {
  State* state = state_.load();
  if (state && state->pid == process_id()) delete state;
}

Pool::State& Pool::state() {
  State* state = state_.load();
  if (!state || state->pid != process_id()) {
    auto fresh = std::make_unique<State>(threads_);
    if (state_.compare_exchange_strong(state, fresh.get())) state = fresh.release();
  }
  return *state;
}

void Pool::cancel() {
  State* state = state_.load();
  if (state && state->pid == process_id()) state->cancel();
}

void Pool::run(int n, const std::function<void(Worker&, int)>& task) {
  if (n > 0) state().run(n, task, nullptr, false);
}

void Pool::run_behind(int n, const std::function<void(Worker&, int)>& task, const std::function<bool()>& stopped,
                      bool urgent) {
  if (n > 0) state().run(n, task, &stopped, urgent);
}

}  // namespace fastfeed
