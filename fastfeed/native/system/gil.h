// The interpreter's lock, for threads that the process may end around.
#pragma once

#include <Python.h>

#include <chrono>
#include <thread>

namespace fastfeed {

// Before 3.14 CPython ends a thread that asks for the lock once the interpreter is ending, by unwinding its stack: in C++
// that ends the process at the first function that must not throw. Such a thread waits here for the end instead.
template <class Ask>
auto or_wait_for_the_end(const Ask& ask) {
  try {
    return ask();
  } catch (...) {  // PyGILState_Ensure and PyEval_RestoreThread throw nothing: it is the unwinding, which must not be ended
    for (;;) std::this_thread::sleep_for(std::chrono::hours(1));
  }
}

class GilAcquire {
 public:
  GilAcquire() : state_(or_wait_for_the_end([] { return PyGILState_Ensure(); })) {}
  ~GilAcquire() { PyGILState_Release(state_); }
  GilAcquire(const GilAcquire&) = delete;
  GilAcquire& operator=(const GilAcquire&) = delete;

 private:
  const PyGILState_STATE state_;
};

class GilRelease {
 public:
  GilRelease() : state_(PyEval_SaveThread()) {}
  ~GilRelease() {
    or_wait_for_the_end([this] {
      PyEval_RestoreThread(state_);
      return true;
    });
  }
  GilRelease(const GilRelease&) = delete;
  GilRelease& operator=(const GilRelease&) = delete;

 private:
  PyThreadState* const state_;
};

}  // namespace fastfeed
