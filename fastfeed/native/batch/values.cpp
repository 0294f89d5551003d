#include "batch/values.h"

#include <algorithm>

#include "system/checksums.h"
#include "traces/json_cursor.h"

namespace fastfeed {
namespace {

constexpr int64_t kLargest = int64_t(1) << 20;  // bytes of a value; larger ones are read one by one, by Python
constexpr int64_t kGap = 4096;                 // bytes between two values that are read with them
constexpr int64_t kAtOnce = int64_t(1) << 18;  // bytes

int64_t start_of(const Location& location) { return location.first - location.head; }

bool same_file(const Location& one, const Location& other) {
  return one.fd == other.fd && (one.fd >= 0 || (one.names == other.names && one.name == other.name));
}

bool is_small_range(const Location& location) {
  return (location.fd >= 0 || location.names) && start_of(location) >= 0 && location.last >= location.first &&
         location.last - start_of(location) <= kLargest;
}

bool digits(Cursor& in) {
  const char* begin = in.at;
  while (!in.done() && is_digit(*in.at)) ++in.at;
  return in.at != begin;
}

}  // namespace

ColumnValues::ColumnValues(const std::vector<Location>& locations) : values_(locations.size()) {
  std::vector<size_t> order;
  for (size_t i = 0; i < locations.size(); ++i)
    if (is_small_range(locations[i])) order.push_back(i);
  std::sort(order.begin(), order.end(), [&](size_t a, size_t b) {
    const Location &one = locations[a], &other = locations[b];
    if (one.fd != other.fd) return one.fd < other.fd;
    if (one.fd < 0 && one.name != other.name) return one.name < other.name;
    return one.first < other.first;
  });
  for (size_t first = 0, last; first < order.size(); first = last) {
    for (last = first + 1; last < order.size() && same_file(locations[order[first]], locations[order[last]]);) ++last;
    read_file_of(locations, order.data() + first, order.data() + last);
  }
}

void ColumnValues::read_file_of(const std::vector<Location>& locations, const size_t* first, const size_t* last) {
  const Location& any = locations[*first];
  const OpenedFile file(any);
  FileStatus status;
  if (file.fd() < 0 || !file_status(file.fd(), status) || !status.regular) return;
  const size_t* const begin = first;
  for (const size_t* next; first != last; first = next) {
    const int64_t start = start_of(locations[*first]);
    int64_t stop = locations[*first].last;
    for (next = first + 1; next != last; ++next) {
      const Location& other = locations[*next];
      if (start_of(other) > stop + kGap || other.last - start > kAtOnce) break;
      stop = std::max(stop, other.last);
    }
    if (stop > status.size) stop = status.size;
    if (stop < start) continue;
    char* memory = memory_.emplace_back(new char[size_t(stop - start) + 1]).get();  // not empty: it is not null
    if (!read_file(file.fd(), reinterpret_cast<uint8_t*>(memory), size_t(stop - start), start)) continue;
    for (const size_t* i = first; i != next; ++i) {
      const Location& location = locations[*i];
      if (location.last > stop) continue;
      const char* value = memory + (location.first - start);
      const auto* head = reinterpret_cast<const uint8_t*>(value - location.head);
      if (location.check && crc32(head, size_t(location.head)) != location.check) continue;
      values_[*i] = {value, size_t(location.last - location.first)};
    }
  }
  // after the reads: nothing was written before or during them
  if (!file_status(file.fd(), status) || !is_unchanged(any, status))
    for (const size_t* i = begin; i != last; ++i) values_[*i] = {};
}

JsonNumber json_number(std::string_view& text) {
  Cursor in{text.data(), text.data() + text.size()};
  in.blanks();
  const char* begin = in.at;
  in.take('-');
  const bool is_zero = !in.done() && *in.at == '0';
  const char* first = in.at;
  if (!digits(in) || (is_zero && in.at != first + 1)) return JsonNumber::none;
  JsonNumber kind = JsonNumber::whole;
  if (in.take('.')) {
    if (!digits(in)) return JsonNumber::none;
    kind = JsonNumber::fraction;
  }
  if (in.take('e') || in.take('E')) {
    if (!in.take('+')) in.take('-');
    if (!digits(in)) return JsonNumber::none;
    kind = JsonNumber::fraction;
  }
  text = {begin, size_t(in.at - begin)};
  in.blanks();
  return in.done() ? kind : JsonNumber::none;
}

}  // namespace fastfeed
