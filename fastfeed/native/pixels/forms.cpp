#include "pixels/forms.h"

#include <algorithm>
#include <bitset>
#include <cstring>

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "pixels/forms.cpp"
#include <hwy/foreach_target.h>
#include <hwy/highway.h>

HWY_BEFORE_NAMESPACE();
namespace fastfeed {
namespace HWY_NAMESPACE {
namespace {

HWY_INLINE bool matches(const uint8_t* table, const LineForm& form) {
  uint8_t values[256];
  for (int h = 0; h < 16; ++h) {
    const int rise = form.rise[h], more = form.more[h], reach = form.reach[h];
    for (int l = 0; l < 16; ++l) {
      const int low = form.step[l] + (reach > form.place[l]);
      const int sum = std::min(std::max(low + rise, -128), 127) + more;
      values[16 * h + l] = uint8_t(std::min(std::max(sum, -128), 127) + 128);
    }
  }
  return !std::memcmp(table, values, 256);
}

// One row of 16 entries against another: what the row adds, the columns where it adds one more, and those where it does
// not. An entry that is clipped says no more than that the sum is not within.
struct Row {
  int rise;
  uint32_t more, less;
};

// Returns false if the row cannot be one of a line.
bool measure(const uint8_t* entries, const uint8_t* base, Row& row) {
  int least = 256, most = -256;
  uint32_t clipped_above = 0, clipped_below = 0, at_most = 0;
  for (int l = 0; l < 16; ++l) {
    const int rise = entries[l] - base[l];
    clipped_above |= uint32_t(entries[l] == 255) << l;
    clipped_below |= uint32_t(entries[l] == 0) << l;
    if (entries[l] == 0 || entries[l] == 255) continue;
    least = std::min(least, rise), most = std::max(most, rise);
  }
  const uint32_t known = 0xFFFF & ~(clipped_above | clipped_below);
  if (!known) {  // beyond by any sum
    if (clipped_above && clipped_below) return false;
    row = {clipped_above ? 255 : -256, clipped_above, 0};  // above by one more too, as a form's rises end at 254
    return true;
  }
  if (most - least > 1) return false;
  // all alike: all without one more, or all with, whichever leaves more to those that are clipped
  row.rise = most == least && clipped_below ? least - 1 : least;
  for (int l = 0; l < 16; ++l) at_most |= uint32_t(entries[l] - base[l] > row.rise) << l;
  row.more = known & at_most;
  row.less = known & ~at_most;
  for (int l = 0; l < 16; ++l) {
    const int sum = base[l] + row.rise;
    if (clipped_above >> l & 1 && sum == 254) row.more |= 1u << l;
    if (clipped_below >> l & 1 && sum == 0) row.less |= 1u << l;
  }
  return true;
}

bool has_line_form(const uint8_t* table, LineForm& form) {
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
  uint32_t before[16] = {};  // the columns that come before one: whose fraction is greater
  for (int h = 0; h < 16; ++h) {
    if (!measure(table + 16 * h, base, rows[h])) return false;
    for (int l = 0; l < 16; ++l)
      before[l] |= rows[h].more & (0 - (rows[h].less >> l & 1));
  }
  for (int k = 0; k < 16; ++k)
    for (int l = 0; l < 16; ++l)
      before[l] |= before[k] & (0 - (before[l] >> k & 1));

  for (int l = 0; l < 16; ++l) {
    form.step[l] = int8_t(base[l] - *low - 128);
    form.place[l] = int8_t(std::bitset<16>(before[l]).count());
  }
  for (int h = 0; h < 16; ++h) {
    int reach = 0;
    for (int l = 0; l < 16; ++l)
      reach = std::max(reach, rows[h].more >> l & 1 ? form.place[l] + 1 : 0);
    const int rise = rows[h].rise + *low;
    form.rise[h] = int8_t(std::min(std::max(rise, -128), 127));
    form.more[h] = int8_t(std::min(std::max(rise - form.rise[h], -128), 127));
    form.reach[h] = int8_t(reach);
  }
  return matches(table, form);
}

}  // namespace
}  // namespace HWY_NAMESPACE
}  // namespace fastfeed
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace fastfeed {
namespace {

HWY_EXPORT(has_line_form);

inline uint8_t value(const BitForm& form, int v) {
  return uint8_t((v & form.keep) ^ form.flip ^ (v >= form.from ? form.above : 0));
}

inline bool matches(const uint8_t* table, const BitForm& form) {
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

}  // namespace

bool has_form(const uint8_t* table, BitForm& form) {
  form = from_end(table, 0);
  if (matches(table, form)) return true;
  form = from_end(table, 255);
  return matches(table, form);
}

bool has_form(const uint8_t* table, LineForm& form) { return HWY_DYNAMIC_DISPATCH(has_line_form)(table, form); }

}  // namespace fastfeed
#endif
