#include "forms.h"

#include <algorithm>
#include <cstring>

namespace fastfeed {
namespace {

inline uint8_t value(const BitForm& form, int v) {
  return uint8_t((v & form.keep) ^ form.flip ^ (v >= form.from ? form.above : 0));
}

inline uint8_t value(const LineForm& form, int v) {
  const int h = v >> 4, l = v & 15;
  const auto clipped = [](int x) { return std::min(std::max(x, -128), 127); };
  const int low = form.step[l] + (form.reach[h] > form.place[l]);
  return uint8_t(clipped(clipped(low + form.rise[h]) + form.more[h]) + 128);
}

template <class Form>
bool matches(const uint8_t* table, const Form& form) {
  uint8_t values[256];
  for (int v = 0; v < 256; ++v) values[v] = value(form, v);
  return !std::memcmp(table, values, 256);
}

// The form with what holds around `end`, 0 or 255, and whatever is elsewhere as the other side.
BitForm from_end(const uint8_t* table, int end) {
  BitForm form = {0, 0, 0, 0};
  for (int bit = 1; bit < 256; bit <<= 1)
    if ((table[end] ^ table[end ^ bit]) == bit) form.keep = uint8_t(form.keep | bit);
  form.flip = uint8_t(table[end] ^ (end & form.keep));
  const int way = end ? -1 : 1;
  int v = end;
  while (v >= 0 && v < 256 && table[v] == value(form, v)) v += way;
  if (v < 0 || v > 255) return form;
  const uint8_t change = uint8_t(table[v] ^ value(form, v));
  if (end) form.flip ^= change;
  form.from = uint8_t(end ? v + 1 : v);
  form.above = change;
  return form;
}

// One row of 16 entries against another: what the row adds, and the columns where it adds one more. What is clipped
// says little: only that it must come out beyond.
struct Row {
  int rise = 0;
  uint32_t more = 0, known = 0;
  bool possible = true;
};

Row row_of(const uint8_t* entries, const uint8_t* base) {
  Row row;
  int least = 256, most = -256;
  for (int l = 0; l < 16; ++l) {
    if (entries[l] == 0 || entries[l] == 255) continue;
    const int rise = entries[l] - base[l];
    least = std::min(least, rise), most = std::max(most, rise);
    row.known |= 1u << l;
  }
  row.rise = least;
  row.possible = !row.known || most - least <= 1;
  if (most > least)
    for (int l = 0; l < 16; ++l)
      if (row.known >> l & 1 && entries[l] - base[l] == most) row.more |= 1u << l;
  return row;
}

}  // namespace

bool has_form(const uint8_t* table, BitForm& form) {
  form = from_end(table, 0);
  if (matches(table, form)) return true;
  form = from_end(table, 255);
  return matches(table, form);
}

bool has_form(const uint8_t* table, LineForm& form) {
  // all is measured by a row that is not clipped
  const uint8_t* base = nullptr;
  for (int h = 0; h < 16 && !base; ++h) {
    const auto [low, high] = std::minmax_element(table + 16 * h, table + 16 * h + 16);
    if (*low > 0 && *high < 255) base = table + 16 * h;
  }
  if (!base) return false;
  const auto [low, high] = std::minmax_element(base, base + 16);
  if (*high - *low > 127) return false;

  Row rows[16];
  int times[16] = {};  // in how many rows a column adds one more
  for (int h = 0; h < 16; ++h) {
    rows[h] = row_of(table + 16 * h, base);
    if (!rows[h].possible) return false;
    if (rows[h].known == 0xFFFF)
      for (int l = 0; l < 16; ++l) times[l] += rows[h].more >> l & 1;
  }
  for (int l = 0; l < 16; ++l) {
    form.step[l] = int8_t(base[l] - *low - 128);
    form.place[l] = 0;
    for (int other = 0; other < 16; ++other) form.place[l] = int8_t(form.place[l] + (times[other] > times[l]));
  }
  for (int h = 0; h < 16; ++h) {
    const Row& row = rows[h];
    const uint8_t* entries = table + 16 * h;
    const bool up = *std::max_element(entries, entries + 16) == 255;  // else what is clipped is below
    const bool partly = row.known != 0xFFFF, least = partly && !up && !row.more;
    // Of what is known alone, the most that the rest may add if it is clipped at 255, and the least if at 0.
    int rise = row.rise + *low - least, reach = up ? 17 : 0;
    for (int l = 0; l < 16; ++l) {
      if (!(row.known >> l & 1)) continue;
      const bool more = least || row.more >> l & 1;
      if (up && !more) reach = std::min(reach, int(form.place[l]));
      if (!up && more) reach = std::max(reach, form.place[l] + 1);
    }
    if (!row.known) rise = up ? 254 : -256;
    form.rise[h] = int8_t(std::min(std::max(rise, -128), 127));
    form.more[h] = int8_t(std::min(std::max(rise - form.rise[h], -128), 127));
    form.reach[h] = int8_t(reach);
  }
  return matches(table, form);
}

}  // namespace fastfeed
