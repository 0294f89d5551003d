// Steps over JSON without making values of it: strings, numbers, brackets, the boundary of two events.
#pragma once

#include <array>
#include <cstddef>
#include <cstring>
#include <string_view>

namespace fastfeed {

inline bool is_blank(char c) { return c == ' ' || c == '\n' || c == '\t' || c == '\r'; }
inline bool is_digit(char c) { return c >= '0' && c <= '9'; }
inline bool is_word(char c) { return is_digit(c) || (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || c == '_'; }

inline const std::array<bool, 256> kStructure = [] {  // what ends a run of anything else inside of arguments
  std::array<bool, 256> table{};
  for (unsigned char c : {'"', '{', '}', '[', ']'}) table[c] = true;
  return table;
}();

struct Cursor {
  const char* at;
  const char* end;

  bool done() const { return at == end; }
  void blanks() {
    while (at != end && is_blank(*at)) ++at;
  }
  bool take(char c) {
    if (at == end || *at != c) return false;
    ++at;
    return true;
  }
  // A string behind its first quote, to behind its last. Escapes stay as they are.
  bool string(std::string_view& text) {
    const char* begin = at;
    while (at != end) {
      const char* quote = static_cast<const char*>(std::memchr(at, '"', size_t(end - at)));
      if (!quote) break;
      at = quote + 1;
      const char* before = quote;
      while (before != begin && before[-1] == '\\') --before;
      if ((quote - before) % 2) continue;
      text = {begin, size_t(quote - begin)};
      return true;
    }
    at = end;
    return false;
  }
  // The same of a name in which the writer may have left quotes as they are: it ends where a key, or the end, follows.
  bool name(std::string_view& text) {
    const char* begin = at;
    while (string(text)) {
      Cursor ahead = *this;
      ahead.blanks();
      if (ahead.done() || *ahead.at == '}' || *ahead.at == ',') {
        text = {begin, size_t(at - 1 - begin)};
        return true;
      }
      if (size_t(at - begin) > 4096 || std::memchr(begin, '\n', size_t(at - begin))) return false;
    }
    return false;
  }
  // To behind the bracket that closes the one before.
  bool nested() {
    size_t depth = 1;
    std::string_view text;
    while (true) {
      while (at != end && !kStructure[static_cast<unsigned char>(*at)]) ++at;
      if (at == end) return false;
      const char c = *at++;
      if (c == '"') {
        if (!string(text)) return false;
      } else if (c == '{' || c == '[') {
        ++depth;
      } else if (!--depth) {
        return true;
      }
    }
  }
  std::string_view token() {  // a number or a word
    const char* begin = at;
    while (at != end && *at != ',' && !is_blank(*at) && !kStructure[static_cast<unsigned char>(*at)]) ++at;
    return {begin, size_t(at - begin)};
  }
};

// , { "key" :   between two events
inline bool following(Cursor& in) {
  in.blanks();
  if (!in.take(',')) return false;
  in.blanks();
  if (!in.take('{')) return false;
  Cursor ahead = in;
  ahead.blanks();
  if (!ahead.take('"')) return false;
  const char* key = ahead.at;
  while (!ahead.done() && is_word(*ahead.at)) ++ahead.at;
  if (ahead.at == key || !ahead.take('"')) return false;
  ahead.blanks();
  return ahead.take(':');
}

// To behind the next place that looks like the boundary of two events. Returns where that begins; the end, if none.
inline const char* next_boundary(Cursor& in) {
  while (const void* brace = in.done() ? nullptr : std::memchr(in.at, '}', size_t(in.end - in.at))) {
    in.at = static_cast<const char*>(brace) + 1;
    Cursor ahead = in;
    if (following(ahead)) {
      in = ahead;
      return static_cast<const char*>(brace);
    }
  }
  in.at = in.end;
  return in.end;
}

}  // namespace fastfeed
