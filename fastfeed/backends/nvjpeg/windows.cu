// Samples from decoded JPEGs: chroma upsampled, colors converted, a window scaled, flipped and turned upright, its border,
// and the conversion of bytes to numbers. One thread makes one pixel. CuPy compiles it on the machine that it runs on, once
// per program, with
//   ENTRY    unsigned integer of the size of a number in the batch
//   FILTER   0 bilinear, 1 bicubic, 2 lanczos, 3 box, 4 nearest, 5 linear
//
// Integers and the choice of pixels are those of libjpeg-turbo (jdsample.c, jdcolor.c) and of native/axis.cpp, so that a
// result differs from the CPU's by the engine's inverse DCT and by the rounding of sums.

#define SUPPORT (FILTER == 0 || FILTER == 5 ? 1.0 : FILTER == 1 ? 2.0 : FILTER == 2 ? 3.0 : 0.5)

struct Task {  // as TASK in windows.py
  unsigned long long luma, blue, red;  // addresses of planes; no chroma: gray
  double top, left, height, width;     // the window, in pixels of the upright image
  int pitch, chroma_pitch;             // bytes per row
  int stored_height, stored_width, chroma_height, chroma_width;
  int across, down;  // luma samples per chroma sample
  int orientation;   // EXIF's, 1 to 8
  int flip_rows, flip_columns;
  int inner_height, inner_width;  // what the window is scaled to
  int corner_row, corner_column;  // where it lies in the result
  int row;                        // of the batch
};

struct Taps {  // weight(k) of pixel low + k, k < count
  int low, count;
  float offset, shrink, total;
};

__device__ inline int clamped(int value, int last) { return value < 0 ? 0 : value > last ? last : value; }

__device__ inline float filtered(float x) {
#if FILTER == 3 || FILTER == 4
  return x > -0.5f && x <= 0.5f ? 1 : 0;
#else
  const float t = x < 0 ? -x : x;
#if FILTER == 0 || FILTER == 5
  return t < 1 ? 1 - t : 0;
#elif FILTER == 1
  if (t < 1) return (1.5f * t - 2.5f) * t * t + 1;
  return t < 2 ? ((-0.5f * t + 2.5f) * t - 4) * t + 2 : 0;
#else
  if (t >= 3) return 0;
  if (t == 0) return 1;
  const float angle = 3.14159265f / 3 * x, ratio = sinf(angle) / angle, squared = ratio * angle * (ratio * angle);
  return ratio * ratio * (1 - squared * (4.0f / 3));  // sin(3a) = 3 sin(a) - 4 sin(a)^3
#endif
#endif
}

__device__ inline float weight(const Taps &taps, int k) { return filtered((k + taps.offset) * taps.shrink); }

// Output i of an axis on which [start, start + length) of `inputs` pixels becomes `outputs`.
__device__ inline Taps taps_of(double start, double length, int inputs, int outputs, int i) {
  const double scale = length / outputs, stretch = scale > 1 && FILTER != 5 ? scale : 1, reach = SUPPORT * stretch;
  const double center = start + (i + 0.5) * scale;
#if FILTER == 4
  double at = start - floor(start) + 0.5 * scale;  // adds up steps, as native/image/axis.h
  for (int k = 0; k < i; ++k) at += scale;
  return Taps{clamped((int)(floor(start) + floor(at)), inputs - 1), 1, 0, 1, 1};
#endif
  const int low = clamped((int)(center - reach + 0.5), inputs - 1);
  int high = (int)(center + reach + 0.5);
  high = high > inputs ? inputs : high;
  high = high <= low ? low + 1 : high;
  Taps taps = {low, high - low, (float)(low - center + 0.5), (float)(1 / stretch), 0};
  for (int k = 0; k < taps.count; ++k) taps.total += weight(taps, k);
  if (taps.total == 0) taps.count = 0;
  return taps;
}

// A chroma sample at the place of a luma sample, as libjpeg-turbo's "fancy" upsampling has it: 3/4 of the nearer one and
// 1/4 of the other each way, with its alternating rounding. Images two chroma samples wide, or less, are not interpolated.
__device__ inline int upsampled(const unsigned char *plane, const Task &task, int y, int x) {
  const int cy = task.down == 2 ? y >> 1 : y, cx = task.across == 2 ? x >> 1 : x;
  const unsigned char *row = plane + (long long)cy * task.chroma_pitch;
  if ((task.across == 1 && task.down == 1) || (task.across == 2 && task.chroma_width <= 2)) return row[cx];
  const int other_x = clamped(cx + (x & 1 ? 1 : -1), task.chroma_width - 1);
  if (task.down == 1) return (3 * row[cx] + row[other_x] + 1 + (x & 1)) >> 2;
  const int other_y = clamped(cy + (y & 1 ? 1 : -1), task.chroma_height - 1);
  const unsigned char *other = plane + (long long)other_y * task.chroma_pitch;
  const int here = 3 * row[cx] + other[cx];
  if (task.across == 1) return (here + 1 + (y & 1)) >> 2;
  return (3 * here + 3 * row[other_x] + other[other_x] + 8 - (x & 1)) >> 4;
}

struct Pixel {
  float red, green, blue;
};

// Pixel (y, x) of the upright image.
__device__ inline Pixel pixel(const Task &task, int y, int x) {
  const int orientation = task.orientation;
  if (orientation >= 5) {
    const int swapped = y;
    y = x, x = swapped;
  }
  if (orientation == 3 || orientation == 4 || orientation == 6 || orientation == 7) y = task.stored_height - 1 - y;
  if (orientation == 2 || orientation == 3 || orientation == 7 || orientation == 8) x = task.stored_width - 1 - x;
  const int luma = ((const unsigned char *)task.luma)[(long long)y * task.pitch + x];
  if (!task.blue) return Pixel{(float)luma, (float)luma, (float)luma};
  const int blue = upsampled((const unsigned char *)task.blue, task, y, x) - 128;
  const int red = upsampled((const unsigned char *)task.red, task, y, x) - 128;
  const int half = 1 << 15;  // 16 bits behind the point: 1.402, 0.71414, 0.34414, 1.772
  return Pixel{(float)clamped(luma + ((91881 * red + half) >> 16), 255),
               (float)clamped(luma + ((-46802 * red - 22554 * blue + half) >> 16), 255),
               (float)clamped(luma + ((116130 * blue + half) >> 16), 255)};
}

__device__ inline int level(float sum, float total) {
  const float value = sum / total + 0.5f;
  return value < 0 ? 0 : value >= 255 ? 255 : (int)value;
}

// Where in [0, length) the pixel lies that is shown at an index outside of it.
__device__ inline int source_index(int at, int length, int mode) {
  if (mode == 2) return clamped(at, length - 1);
  const int turn = mode == 4, period = length + turn > 1 ? 2 * (length - 1 + turn) : 1;
  const int place = (at % period + period) % period, back = period - turn - place;
  return clamped(place < back ? place : back, length - 1);
}

// out: number (y, x, channel) of row k lies at k * to_row + y * to_y + x * to_x + channel * to_channel.
// table: what stands in the batch for each of 256 levels of each of 3 channels. border: 0 none, 1 constant, 2 edge, 3 reflect,
// 4 symmetric.
extern "C" __global__ void cut_windows(const Task *tasks, const ENTRY *table, ENTRY *out, int height, int width,
                                       long long to_row, int to_y, int to_x, int to_channel, int border, int fill_red, int fill_green,
                                       int fill_blue) {
  const int x = blockIdx.x * blockDim.x + threadIdx.x, y = blockIdx.y * blockDim.y + threadIdx.y;
  if (x >= width || y >= height) return;
  const Task &task = tasks[blockIdx.z];
  ENTRY *to = out + task.row * to_row + (long long)y * to_y + (long long)x * to_x;
  int row = y - task.corner_row, column = x - task.corner_column;
  const bool outside = row < 0 || row >= task.inner_height || column < 0 || column >= task.inner_width;
  if (outside && border <= 1) {
    to[0] = table[3 * fill_red], to[to_channel] = table[3 * fill_green + 1];
    to[2 * to_channel] = table[3 * fill_blue + 2];
    return;
  }
  if (outside) {
    row = source_index(row, task.inner_height, border);
    column = source_index(column, task.inner_width, border);
  }
  if (task.flip_rows) row = task.inner_height - 1 - row;
  if (task.flip_columns) column = task.inner_width - 1 - column;

  const bool turned = task.orientation >= 5;
  const int rows = turned ? task.stored_width : task.stored_height, columns = turned ? task.stored_height : task.stored_width;
  const Taps down = taps_of(task.top, task.height, rows, task.inner_height, row);
  const Taps right = taps_of(task.left, task.width, columns, task.inner_width, column);
  Pixel sum = {0, 0, 0};
  float total = down.count && right.count ? down.total * right.total : 1;
  if (!down.count || !right.count) sum = pixel(task, down.low, right.low);  // no pixel's weight is above zero
  for (int j = 0; j < down.count; ++j) {
    const float by_row = weight(down, j);
    if (by_row == 0) continue;
    for (int k = 0; k < right.count; ++k) {
      const Pixel one = pixel(task, down.low + j, right.low + k);
      const float by = by_row * weight(right, k);
      sum.red += by * one.red, sum.green += by * one.green, sum.blue += by * one.blue;
    }
  }
  to[0] = table[3 * level(sum.red, total)];
  to[to_channel] = table[3 * level(sum.green, total) + 1];
  to[2 * to_channel] = table[3 * level(sum.blue, total) + 2];
}
