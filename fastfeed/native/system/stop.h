// A flag that a caller sets to end work under way; null: never set.
#pragma once

#include <atomic>

namespace fastfeed {

using Stop = const std::atomic<bool>*;

inline bool is_set(Stop stop) { return stop && stop->load(std::memory_order_relaxed); }

}  // namespace fastfeed
