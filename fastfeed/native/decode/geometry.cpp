#include "decode/geometry.h"

namespace fastfeed {

// decode/orientation.py has the same table.
Box stored(const Window& w, const Header& header) {
  const double bottom = header.shown_height() - w.top - w.height, right = header.shown_width() - w.left - w.width;
  switch (header.orientation) {
    case 2: return {w.top, right, w.height, w.width};
    case 3: return {bottom, right, w.height, w.width};
    case 4: return {bottom, w.left, w.height, w.width};
    case 5: return {w.left, w.top, w.width, w.height};
    case 6: return {right, w.top, w.width, w.height};
    case 7: return {right, bottom, w.width, w.height};
    case 8: return {w.left, bottom, w.width, w.height};
    default: return {w.top, w.left, w.height, w.width};
  }
}

Reversed reversed(const Header& header, const Window& window) {
  const int orientation = header.orientation;
  // stored rows run upwards on the display in 3, 4; to the left in 6, 7. Stored columns: to the left in 2, 3;
  // upwards in 7, 8
  bool up = orientation == 3 || orientation == 4 || orientation == 7 || orientation == 8;
  bool leftwards = orientation == 2 || orientation == 3 || orientation == 6 || orientation == 7;
  up ^= window.flip_rows, leftwards ^= window.flip_columns;
  return orientation >= 5 ? Reversed{leftwards, up} : Reversed{up, leftwards};
}

Target target(const Slot& slot, int channels, const Header& header, const Window& window) {
  const bool swap = header.orientation >= 5;
  const Reversed stored = reversed(header, window);
  const bool up = swap ? stored.columns : stored.rows, leftwards = swap ? stored.rows : stored.columns;
  const ptrdiff_t down = up ? -slot.row : slot.row, right = leftwards ? -channels : channels;
  uint8_t* at = slot.at;
  if (up) at += slot.row * (slot.height - 1);
  if (leftwards) at += channels * ptrdiff_t(slot.width - 1);
  return swap ? Target{at, right, down} : Target{at, down, right};
}

}  // namespace fastfeed
