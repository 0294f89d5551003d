// A shared limit on the memory that decoding holds, as for progressive files.
#pragma once

#include <cstddef>

#include "system/stop.h"

namespace fastfeed {

// How many bytes all Admissions of this process may hold at once; 1 GiB at first. Those that wait look again when one ends.
void limit_held_bytes(size_t bytes);

// Holds `bytes` of what all threads may hold at once; waits for room, first come, first served, so that something large
// does not starve. A request larger than the limit waits until it is alone. Nothing is held where `stop` was set first.
class Admission {
 public:
  explicit Admission(size_t bytes, Stop stop = nullptr);
  ~Admission();
  Admission(const Admission&) = delete;
  Admission& operator=(const Admission&) = delete;
  bool stopped() const { return stopped_; }

 private:
  size_t bytes_;
  bool stopped_ = false;
};

}  // namespace fastfeed
