// NVIDIA's nvJPEG and the CUDA driver, loaded while the program runs: nothing of CUDA is needed for building.
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
using CudaEvent = struct CUevent_st*;

constexpr int kNvjpegHardware = 3;     // NVJPEG_BACKEND_HARDWARE
constexpr int kNvjpegYuv = 1;          // NVJPEG_OUTPUT_YUV: luma and chroma as they are stored, one plane each
constexpr int kNvjpegRgbi = 5;         // NVJPEG_OUTPUT_RGBI
constexpr int kNvjpeg444 = 0, kNvjpeg422 = 1, kNvjpeg420 = 2, kNvjpeg440 = 3, kNvjpegGray = 6;  // NVJPEG_CSS_...
constexpr int kNvjpegUpright = 1;      // NVJPEG_ORIENTATION_NORMAL: as it is stored
constexpr int kNvjpegBadJpeg = 3, kNvjpegUnsupportedJpeg = 4, kNvjpegAllocatorFailure = 5, kNvjpegArchitecture = 7,
              kNvjpegNotImplemented = 9, kNvjpegIncomplete = 10;  // NVJPEG_STATUS_...
constexpr unsigned kCudaNonBlocking = 1;  // CU_STREAM_NON_BLOCKING
constexpr unsigned kCudaSleep = 3;        // CU_EVENT_BLOCKING_SYNC and DISABLE_TIMING: the host sleeps, and does not spin

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
  int (*params_orientation)(NvjpegParams, int orientation);
  int (*frame_size)(NvjpegStream, unsigned* width, unsigned* height);
  int (*subsampling)(NvjpegStream, int* subsampling);
  int (*supported)(NvjpegHandle, NvjpegStream, NvjpegParams, int* unsupported);  // 0: it is supported
  int (*initialize)(NvjpegHandle, NvjpegState, int batch, int cpu_threads, int format);
  int (*preallocate)(NvjpegHandle, NvjpegState, int batch, int width, int height, int subsampling, int format);
  int (*decode)(NvjpegHandle, NvjpegState, const unsigned char* const* data, const size_t* lengths, NvjpegImage* images,
                NvjpegParams* params, CudaStream);

  int (*driver_init)(unsigned flags);
  int (*device_get)(int* device, int ordinal);
  int (*context_retain)(CudaContext*, int device);
  int (*context_release)(int device);
  int (*context_push)(CudaContext);
  int (*context_pop)(CudaContext*);
  int (*stream_open)(CudaStream*, unsigned flags);
  int (*stream_close)(CudaStream);
  int (*event_create)(CudaEvent*, unsigned flags);
  int (*event_destroy)(CudaEvent);
  int (*event_record)(CudaEvent, CudaStream);
  int (*event_wait)(CudaEvent);
  int (*error_name)(int error, const char** name);
};

}  // namespace fastfeed
