// NVIDIA's nvJPEG and the CUDA driver, loaded while the program runs: nothing of CUDA is needed to build the kernel.
#pragma once

#include <cstddef>
#include <string>

namespace fastfeed {

// As in nvjpeg.h 12.3 to 13.3, of which only what is used stands here.
struct NvjpegImage {
  static constexpr int kPlanes = 4;
  unsigned char* channel[kPlanes];
  size_t pitch[kPlanes];
};
using NvjpegHandle = struct nvjpegHandle*;
using NvjpegState = struct nvjpegJpegState*;
using NvjpegStream = struct nvjpegJpegStream*;  // a parsed header
using NvjpegParams = struct nvjpegDecodeParams*;
using CudaContext = struct CUctx_st*;
using CudaStream = struct CUstream_st*;

constexpr int kNvjpegHardware = 3;     // NVJPEG_BACKEND_HARDWARE
constexpr int kNvjpegYuv = 1;          // NVJPEG_OUTPUT_YUV: luma and chroma as they are stored, one plane each
constexpr int kNvjpeg444 = 0;          // NVJPEG_CSS_444
constexpr int kNvjpegUpright = 1;      // NVJPEG_ORIENTATION_NORMAL: as it is stored
constexpr int kNvjpegAllocatorFailure = 5;
constexpr unsigned kCudaNonBlocking = 1;  // CU_STREAM_NON_BLOCKING

// The functions, by name. One object per process and pair of libraries would do; each decoder has its own.
struct NvjpegApi {
  // Throws std::runtime_error that names the library and what is wrong with it.
  NvjpegApi(const std::string& nvjpeg, const std::string& driver);

  int (*create)(int backend, void* device_allocator, void* pinned_allocator, unsigned flags, NvjpegHandle*);
  int (*destroy)(NvjpegHandle);
  int (*state_create)(NvjpegHandle, NvjpegState*);
  int (*state_destroy)(NvjpegState);
  int (*stream_create)(NvjpegHandle, NvjpegStream*);
  int (*stream_destroy)(NvjpegStream);
  int (*parse_header)(NvjpegHandle, const unsigned char* data, size_t length, NvjpegStream);
  int (*params_create)(NvjpegHandle, NvjpegParams*);
  int (*params_destroy)(NvjpegParams);
  int (*params_format)(NvjpegParams, int format);
  int (*params_orientation)(NvjpegParams, int orientation);
  int (*supported)(NvjpegHandle, NvjpegStream, NvjpegParams, int* unsupported);  // 0: it is supported
  int (*initialize)(NvjpegHandle, NvjpegState, int batch, int cpu_threads, int format);
  int (*preallocate)(NvjpegHandle, NvjpegState, int batch, int width, int height, int subsampling, int format);
  int (*decode)(NvjpegHandle, NvjpegState, const unsigned char* const* data, const size_t* lengths, NvjpegImage* images,
                NvjpegParams* params, CudaStream);

  int (*driver_init)(unsigned flags);
  int (*device_get)(int* device, int ordinal);
  int (*context_retain)(CudaContext*, int device);
  int (*context_release)(int device);
  int (*context_use)(CudaContext);
  int (*stream_open)(CudaStream*, unsigned flags);
  int (*stream_close)(CudaStream);
  int (*stream_wait)(CudaStream);
  int (*error_name)(int error, const char** name);
};

}  // namespace fastfeed
