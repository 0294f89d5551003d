// What libjpeg calls when something is wrong with a file, or at every step: ends in a Status.
#pragma once

#include <csetjmp>
#include <cstddef>
#include <cstdio>

#include <jpeglib.h>

#include "image/header.h"
#include "system/stop.h"

namespace fastfeed {

class Coefficients;
class Progressive;

// The first member of info.err. Functions that libjpeg calls through C leave by longjmp to `jump`, so nothing on the way
// may need a destructor.
struct JpegErrors {
  jpeg_error_mgr base;
  jpeg_progress_mgr progress;
  std::jmp_buf jump;
  Status status;
  bool damaged, gave_up;
  Stop stop;
  Progressive* progressive;    // takes over before the first scan is read; null: none
  Coefficients* coefficients;  // keeps blocks between scans
  boolean (*read_restart)(j_decompress_ptr);  // libjpeg's
  void* (*allocate)(j_common_ptr, int, size_t);
};

inline JpegErrors& errors_of(j_common_ptr info) { return *reinterpret_cast<JpegErrors*>(info->err); }

// Before jpeg_create_decompress: errors end in `jump`.
void catch_errors(j_decompress_ptr info, JpegErrors& errors);
// After it: limits on scans, and no table outlives its image.
void watch_progress(j_decompress_ptr info, JpegErrors& errors);

// Data that no block has used before a restart marker are damage. libjpeg warns of those that it has not read yet alone.
void watch_restarts(j_decompress_ptr info, JpegErrors& errors);

[[noreturn]] void fail(j_common_ptr info);
[[noreturn]] void out_of_memory(j_common_ptr info);
[[noreturn]] void give_up(j_common_ptr info);  // not the file's fault

}  // namespace fastfeed
