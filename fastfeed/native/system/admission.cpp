#include "system/admission.h"

#include <atomic>
#include <chrono>
#include <condition_variable>
#include <cstdint>
#include <mutex>
#include <set>

#include "system/system.h"

namespace fastfeed {
namespace {

std::atomic<size_t> held_bytes_limit{size_t(1) << 30};
constexpr std::chrono::milliseconds kAskAfter(50);  // how often a waiting caller looks whether it should stop

struct HeldMemory {
  std::mutex mutex;
  std::condition_variable change;
  size_t used = 0;
  uint64_t last = 0, turn = 0;  // tickets issued; the one being served
  std::set<uint64_t> given_up;  // tickets whose turn has not come, of callers that were stopped

  void serve_next() {
    do ++turn;
    while (given_up.erase(turn));
    change.notify_all();
  }
};

// Never destroyed: threads may still hold something at exit. A forked child gets an empty one, since the parent's may
// be locked by a thread that the child does not have.
HeldMemory*& held_memory() {
  static HeldMemory* one = [] {
    after_fork([] { held_memory() = new HeldMemory; });
    return new HeldMemory;
  }();
  return one;
}

}  // namespace

void limit_held_bytes(size_t bytes) { held_bytes_limit = bytes; }

Admission::Admission(size_t bytes, Stop stop) : bytes_(bytes) {
  if (!bytes_) return;
  HeldMemory& p = *held_memory();
  std::unique_lock<std::mutex> lock(p.mutex);
  const uint64_t ticket = p.last++;
  const auto has_room = [&] { return p.turn == ticket && (!p.used || p.used + bytes_ <= held_bytes_limit); };
  while (!has_room() && !is_set(stop)) p.change.wait_for(lock, kAskAfter);
  stopped_ = !has_room();
  if (stopped_) bytes_ = 0;
  p.used += bytes_;
  if (p.turn == ticket) p.serve_next();
  else p.given_up.insert(ticket);
}

Admission::~Admission() {
  if (!bytes_) return;
  HeldMemory& p = *held_memory();
  std::lock_guard<std::mutex> lock(p.mutex);
  p.used -= bytes_;
  p.change.notify_all();
}

}  // namespace fastfeed
