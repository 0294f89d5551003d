// What a call does to every sample, as data: the window's rules, layers of ops, and a conversion. `ops/program/` in
// Python compiles it; the parameters of the samples come with each call.
#pragma once

#include <cstddef>
#include <cstdint>
#include <map>
#include <memory>
#include <string>
#include <vector>

#include "ops/window.h"
#include "decode/worker.h"
#include "pixels/tables.h"

namespace fastfeed {

enum class Code : int {
  brightness, solarize, solarize_add, posterize, invert, gamma, lut,       // a table known beforehand
  contrast, equalize, autocontrast,                          // a table that depends on the image
  grayscale, channels, saturation, hue, sharpness, blur, motion, median, noise, jpeg,  // all else
  warp, elastic, grid_distortion, erase, erase_noise, grid_mask, window, augmix,
};

// By name: the code, and how many numbers a sample has; -1: by the constants.
struct Kind {
  Code code;
  int numbers;
};
const std::map<std::string, Kind>& kinds();

struct Layer;

// A simple op. What the constants and the numbers of a sample mean is written where it runs, in chain.cpp.
struct Op {
  Code code;
  int numbers;  // per sample
  std::vector<double> constants;
  std::vector<Layer> chain;  // augmix: the layers that each version goes through
  int versions = 0;          // augmix
};

// A sample takes one op of a layer, or none.
struct Layer {
  std::vector<Op> ops;
};

struct LayerValues;

// Of n samples: (n, op.numbers), and for augmix the layers of each version in turn.
struct OpValues {
  const double* numbers = nullptr;
  std::vector<LayerValues> chains;
};

struct LayerValues {
  const int64_t* choice = nullptr;  // (n,): which op; -1 for none
  std::vector<OpValues> ops;
};

// The last step: bytes to what the batch holds.
struct Conversion {
  bool planar = false;                        // channels first
  // Of the numbers where each image gets its own table, by its mean and deviation; `none` where all share one.
  enum class Standardized { none, float32, float16, bfloat16 } standardized = Standardized::none;
  std::shared_ptr<const EntryTables> tables;  // that numbers are looked up in; none where bytes stay

  int entry() const { return tables ? tables->size : 1; }  // bytes of a number
};

// Tables that ops read noise from.
struct NoiseTables {
  const int16_t* steps = nullptr;
  const uint8_t* gray = nullptr;
  int64_t length = 0;
  int per_unit = 1;
  std::shared_ptr<const void> owner;
};

struct Program {
  bool encoded = true;  // samples are files; otherwise pixels of the channels below
  int height = 0, width = 0, channels = 3;  // after the window
  int out_height = 0, out_width = 0;        // after the layers
  Filter filter = Filter::bilinear;
  Limits limits;
  double enlarge_by_filter[kFilters] = {};  // `limits.enlarge` where each sample has its own filter
  Border border;
  int views = 1;       // windows per sample
  bool whole = false;  // they are cut from the whole image, decoded once
  std::vector<Layer> layers;
  Conversion conversion;
  int64_t wait_ns = 0;  // for benchmarks: a sample takes this long, and nothing is done, so threads stand for cores
  NoiseTables noise;

  size_t out_bytes() const {  // of one window in the batch
    return size_t(out_height) * size_t(out_width) * size_t(channels) * size_t(conversion.entry());
  }
};

}  // namespace fastfeed
