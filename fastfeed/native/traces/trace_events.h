// Complete events of a Chrome trace as columns: what the profiler's reader spends most of its time on.
#pragma once

#include <cstddef>
#include <cstdint>
#include <deque>
#include <string>
#include <string_view>
#include <unordered_map>
#include <utility>
#include <vector>

namespace fastfeed {

// Distinct texts, numbered in the order in which they came.
class TextIndex {
 public:
  int32_t of(std::string_view text);
  const std::string& at(size_t number) const { return texts_.at(number); }
  size_t size() const { return texts_.size(); }

 private:
  std::deque<std::string> texts_;  // that the keys point into
  std::unordered_map<std::string_view, int32_t> numbers_;
};

// One row per event. Times are nanoseconds, rounded after picoseconds were added; -1 is what an event does not say.
struct EventColumns {
  std::vector<int32_t> cat, name, thread, stream;  // numbers of texts; stream: "device,stream"
  std::vector<int64_t> start, end, corr, bytes;
  std::vector<int64_t> args_at, args_size;  // of the text between the braces, in the piece
};

struct TraceEvent;

class EventScanner {
 public:
  // A piece of the list of events, from behind the brace of its first event; the brace of the last one may be missing.
  // Complete events with plain fields are added to the columns, in their order; of other events the places of their
  // text, without braces. Flow arrows, counters and instants are passed over. What is no JSON ends where the next
  // event seems to begin: reader and writer agree on no more than that.
  void scan(std::string_view piece, EventColumns& rows, std::vector<std::pair<size_t, size_t>>& others);

  const TextIndex& cats() const { return cats_; }
  const TextIndex& names() const { return names_; }      // JSON, between the quotes
  const TextIndex& threads() const { return threads_; }  // JSON: "pid":1,"tid":2
  const TextIndex& streams() const { return streams_; }

 private:
  void add(const TraceEvent& event, int64_t start, int64_t end, const char* piece, EventColumns& rows);

  TextIndex cats_, names_, threads_, streams_;
  std::string key_;  // scratch
};

}  // namespace fastfeed
