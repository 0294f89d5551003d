// The pool for ThreadSanitizer: runs side by side, cancelled, failing, destroyed under way, forked.
#include "batch/pool.h"

#include <sys/wait.h>
#include <unistd.h>

#include <atomic>
#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <memory>
#include <stdexcept>
#include <thread>
#include <vector>

#include "expect.h"
#include "decode/worker.h"

using namespace fastfeed;

namespace {

template <class F>
void at_once(int n, F f) {
  std::vector<std::thread> threads;
  for (int i = 0; i < n; ++i) threads.emplace_back([i, &f] { f(i); });
  for (auto& thread : threads) thread.join();
}

}  // namespace

int main(int argc, char** argv) {
  const int rounds = argc > 1 ? std::atoi(argv[1]) : 50;
  const std::vector<uint8_t> blob(100, 0xFF);
  long calls = 0;
  for (int round = 0; round < rounds; ++round) {
    // every task once, whichever thread asks for it
    Pool pool(1 + round % 4);
    std::atomic<long> sum{0};
    at_once(4, [&](int) {
      for (int k = 0; k < 10; ++k) {
        std::vector<int> seen(50);
        pool.run(50, [&](Worker& worker, int i) {
          uint8_t pixels[12];
          worker.decode(blob.data(), blob.size(), {0, 0, 1, 1, false, false}, Filter::box, Limits{}, {pixels, 6, 2, 2});
          seen[size_t(i)] += 1;
          ++sum;
        });
        for (int count : seen) expect(count == 1, "each task is called once");
      }
    });
    expect(sum == 4 * 10 * 50, "all tasks are called");
    calls += sum;

    // cancelled by another thread
    std::atomic<bool> over{false};
    std::thread canceller([&] {
      while (!over) pool.cancel(), std::this_thread::yield();
    });
    at_once(3, [&](int) {
      for (int k = 0; k < 10; ++k) pool.run(50, [](Worker&, int) { std::this_thread::yield(); });
    });
    over = true;
    canceller.join();

    // what a task throws arrives where run() was called
    at_once(3, [&](int who) {
      bool caught = false;
      try {
        pool.run(20, [who](Worker&, int i) {
          if (i == 7) throw std::runtime_error(std::to_string(who));
        });
      } catch (const std::runtime_error& error) {
        caught = error.what() == std::to_string(who);
      }
      expect(caught, "an exception is thrown to its caller");
    });

    // admissions larger than what there is wait for one another, and end
    at_once(4, [&](int who) {
      for (int k = 0; k < 5; ++k) const Admission held(size_t(who % 2 ? 700 : 2000) << 20);
    });

    // destroyed while runs go on
    auto* dying = new Pool(3);
    std::atomic<int> begun{0};
    std::vector<std::thread> runners;
    for (int k = 0; k < 3; ++k)
      runners.emplace_back([&] {
        dying->run(1000, [&](Worker&, int i) {
          if (!i) ++begun;
          std::this_thread::sleep_for(std::chrono::microseconds(50));
        });
      });
    while (begun < 3) std::this_thread::yield();
    delete dying;
    for (auto& runner : runners) runner.join();
  }

  // Asking for a stop throws while threads are at work: they end first, and the caller gets the error.
  {
    Pool asked(3);
    for (int round = 0; round < 5; ++round) {
      std::atomic<int> under_way{0};
      bool thrown = false;
      try {
        asked.run_behind(10000, [&](Worker&, int) {
          ++under_way;
          std::this_thread::sleep_for(std::chrono::milliseconds(5));
          --under_way;
        }, []() -> bool { throw std::runtime_error("asked"); });
      } catch (const std::runtime_error&) {
        thrown = true;
      }
      expect(thrown && under_way == 0, "an error while asking comes after the threads have ended");
    }
  }

  // A forked child, at a moment when the pool's threads are at work: uses the pool, and destroys it.
  for (int round = 0; round < 10; ++round) {
    auto pool = std::make_unique<Pool>(3);
    std::atomic<bool> over{false};
    std::thread busy([&] {
      while (!over) pool->run(20, [](Worker&, int) { const Admission held(1000); });
    });
    const pid_t child = fork();
    if (!child) {
      alarm(20);
#if defined(__has_feature)
#if __has_feature(thread_sanitizer)
      _exit(0);  // ThreadSanitizer allows no threads in a child; `run.sh leaks` covers the rest
#endif
#endif
      std::atomic<int> sum{0};
      if (round % 2)
        pool->run(20, [&](Worker&, int) {
          const Admission held(1000);
          ++sum;
        });
      pool.reset();
      _exit(sum == (round % 2 ? 20 : 0) ? 0 : 1);
    }
    int status = 0;
    waitpid(child, &status, 0);
    over = true;
    busy.join();
    expect(WIFEXITED(status) && WEXITSTATUS(status) == 0, "a forked child neither hangs nor crashes");
  }
  std::printf("%d rounds, %ld tasks counted, 10 forks\n", rounds, calls);
}
