#include "traces/trace_events.h"

#include <optional>

#include "traces/json_cursor.h"

namespace fastfeed {

constexpr int64_t kAbsent = INT64_MIN;  // no such argument

struct TraceEvent {
  std::string_view phase, cat, name, pid, tid, ts, dur, args;
  bool has_name = false, plain = true;
  int64_t corr = kAbsent, corr_id = kAbsent, device = kAbsent, stream = kAbsent, bytes = kAbsent;
};

namespace {

constexpr int64_t kMaxMicroseconds = 9'000'000'000'000'000;  // that fit int64 nanoseconds
constexpr size_t kMaxWaste = 8;  // how often a piece may be looked through in vain

// -?[0-9]{1,18}
std::optional<int64_t> integer(std::string_view text) {
  const bool negative = !text.empty() && text[0] == '-';
  if (negative) text.remove_prefix(1);
  if (text.empty() || text.size() > 18 || (text[0] == '0' && text.size() > 1)) return {};
  int64_t value = 0;
  for (char c : text) {
    if (!is_digit(c)) return {};
    value = value * 10 + (c - '0');
  }
  return negative ? -value : value;
}

// An argument that is an integer: "none" in 32 bits is -1, and so is anything else.
int64_t argument(std::string_view text) {
  const int64_t value = integer(text).value_or(-1);
  return value == INT64_C(0xFFFFFFFF) || value == INT64_C(0x7FFFFFFF) ? -1 : value;
}

struct Time {
  int64_t us = 0, ps = 0;  // ps: the picoseconds after the whole microseconds

  int64_t ns() const { return us * 1000 + (ps + 500) / 1000; }
  Time plus(const Time& other) const { return {us + other.us, ps + other.ps}; }
  // Digits, and at most one point after them.
  bool parse(std::string_view text) {
    us = ps = 0;
    size_t i = 0;
    for (; i < text.size() && text[i] != '.'; ++i) {
      if (!is_digit(text[i]) || us > kMaxMicroseconds) return false;
      us = us * 10 + (text[i] - '0');
    }
    if (!i || us > kMaxMicroseconds) return false;
    int64_t scale = 100'000;
    for (++i; i < text.size(); ++i, scale /= 10) {
      if (!is_digit(text[i])) return false;
      ps += (text[i] - '0') * scale;
    }
    return true;
  }
};

// Arguments behind their first brace: as lenient as it gets, but brackets have to be closed.
bool arguments(Cursor& in, TraceEvent& event) {
  event.corr = event.corr_id = event.device = event.stream = event.bytes = kAbsent;
  const char* begin = in.at;
  while (true) {
    in.blanks();
    if (in.done()) return false;
    if (in.take('}')) break;
    if (!in.take('"')) {
      if (*in.at == '{' || *in.at == '[') {
        ++in.at;
        if (!in.nested()) return false;
      } else if (*in.at == ']') {
        return false;
      } else {
        ++in.at;
      }
      continue;
    }
    std::string_view key, value;
    if (!in.string(key)) return false;
    in.blanks();
    if (!in.take(':')) continue;
    in.blanks();
    if (in.done()) return false;
    if (in.take('"')) {
      if (!in.string(value)) return false;
    } else if (*in.at == '{' || *in.at == '[') {
      ++in.at;
      if (!in.nested()) return false;
    } else {
      value = in.token();
    }
    switch (key.size()) {
      case 5:
        if (key == "bytes") event.bytes = argument(value);
        break;
      case 6:
        if (key == "device") event.device = integer(value) ? argument(value) : kAbsent;
        if (key == "stream") event.stream = integer(value) ? argument(value) : kAbsent;
        break;
      case 11:
        if (key == "correlation") event.corr = argument(value);
        break;
      case 14:
        if (key == "correlation_id") event.corr_id = argument(value);
        break;
    }
  }
  event.args = {begin, size_t(in.at - 1 - begin)};
  return true;
}

// One field behind the quote of its key. What is not plain is left to the parser of JSON.
bool field(Cursor& in, TraceEvent& event) {
  std::string_view key, value;
  if (!in.string(key)) return false;
  in.blanks();
  if (!in.take(':')) return false;
  in.blanks();
  if (in.done()) return false;
  const char kind = *in.at;
  if (kind == '"') {
    ++in.at;
    if (key == "name" ? !in.name(value) : !in.string(value)) return false;
  } else if (kind == '{' || kind == '[') {
    ++in.at;
    if (kind == '{' && key == "args") return arguments(in, event);
    if (!in.nested()) return false;
  } else {
    value = in.token();
    if (value.empty()) return false;
  }
  const bool quoted = kind == '"', scalar = quoted || (kind != '{' && kind != '[');
  const bool escaped = quoted && value.find('\\') != value.npos;
  if (key == "name") {
    event.name = value;
    event.has_name = quoted;
    event.plain &= quoted;
  } else if (key == "ph" || key == "cat") {
    (key == "ph" ? event.phase : event.cat) = value;
    event.plain &= quoted && !escaped;
  } else if (key == "ts" || key == "dur") {
    (key == "ts" ? event.ts : event.dur) = value;
    event.plain &= scalar;
  } else if (key == "pid" || key == "tid") {
    event.plain &= scalar && !escaped && (quoted || integer(value));
    if (quoted) value = {value.data() - 1, value.size() + 2};
    (key == "pid" ? event.pid : event.tid) = value;
  } else if (key == "args" || key.find('\\') != key.npos) {
    event.plain = false;
  }
  return true;
}

// An object behind its brace, to behind the one that closes it, or to the end of the piece; `close` is where it ends.
bool object(Cursor& in, TraceEvent& event, const char*& close) {
  while (true) {
    in.blanks();
    if (!in.take('"') || !field(in, event)) return false;
    in.blanks();
    close = in.at;
    if (in.done() || in.take('}')) return true;
    if (!in.take(',')) return false;
  }
}

}  // namespace

int32_t TextIndex::of(std::string_view text) {
  const auto found = numbers_.find(text);
  if (found != numbers_.end()) return found->second;
  texts_.emplace_back(text);
  const int32_t number = int32_t(texts_.size() - 1);
  numbers_.emplace(texts_.back(), number);
  return number;
}

void EventScanner::add(const TraceEvent& event, int64_t start, int64_t end, const char* piece, EventColumns& rows) {
  rows.cat.push_back(cats_.of(event.cat));
  rows.name.push_back(names_.of(event.name));
  key_.assign("\"pid\":").append(event.pid).append(",\"tid\":").append(event.tid);
  rows.thread.push_back(threads_.of(key_));
  rows.start.push_back(start);
  rows.end.push_back(end);
  const int64_t corr = event.corr != kAbsent ? event.corr : event.corr_id;
  rows.corr.push_back(corr != kAbsent ? corr : -1);
  rows.bytes.push_back(event.bytes != kAbsent ? event.bytes : -1);
  int32_t stream = -1;
  if (event.device != kAbsent && event.stream != kAbsent) {
    key_.assign(std::to_string(event.device)).append(",").append(std::to_string(event.stream));
    stream = streams_.of(key_);
  }
  rows.stream.push_back(stream);
  rows.args_at.push_back(event.args.empty() ? 0 : event.args.data() - piece);
  rows.args_size.push_back(int64_t(event.args.size()));
}

void EventScanner::scan(std::string_view piece, EventColumns& rows, std::vector<std::pair<size_t, size_t>>& others) {
  const char *const begin = piece.data(), *const end = begin + piece.size();
  const auto leave = [&](const char* from, const char* to) { others.emplace_back(from - begin, to - from); };
  size_t wasted = 0;
  for (Cursor next{begin, end};;) {
    const char *const at = next.at, *close = end;
    TraceEvent event;
    bool sound = wasted <= kMaxWaste * piece.size() && object(next, event, close);
    const char* const seen = next.at;
    if (sound) {
      next.blanks();
      sound = next.done() || following(next);
    }
    if (!sound) {
      wasted += size_t(seen - at);
      leave(at, next_boundary(next = {at, end}));
    } else if (event.phase == "X" || event.phase == "B" || event.phase == "E" || event.phase == "M" || !event.plain) {
      Time ts, dur;
      const bool whole = event.has_name && !event.pid.empty() && !event.tid.empty();
      if (event.phase == "X" && event.plain && whole && ts.parse(event.ts) && dur.parse(event.dur))
        add(event, ts.ns(), ts.plus(dur).ns(), begin, rows);
      else
        leave(at, close);
    }
    if (next.done()) return;
  }
}

}  // namespace fastfeed
