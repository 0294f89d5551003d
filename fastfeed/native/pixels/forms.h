// Forms of a table of bytes that take less than a look-up in 256 entries: most tables of color ops have one.
#pragma once

#include <cstdint>

namespace fastfeed {

// (byte & keep) ^ flip, ^ above from `from` on: what inverts, solarizes or posterizes.
struct BitForm {
  uint8_t keep, flip, from, above;
};

// A straight line, rounded and clipped at both ends. Of a byte 16 h + l:
//   rise[h] + more[h] + step[l] + 128 + (reach[h] > place[l]), with the sum clipped in this order.
// What h and l add to each other's fractions is less than two, so that all that matters is if it is one or more, and
// for that only the order of the fractions.
struct LineForm {
  alignas(16) int8_t rise[16], more[16], reach[16], step[16], place[16];
};

// Whether the table has the form.
bool has_form(const uint8_t* table, BitForm& form);
bool has_form(const uint8_t* table, LineForm& form);

}  // namespace fastfeed
