// What the kernel believes of nvJPEG and the CUDA driver, against NVIDIA's own headers: it is right if this compiles.
#include <cuda.h>
#include <nvjpeg.h>

#include <cstddef>
#include <type_traits>

#include "nvjpeg_api.h"

using namespace fastfeed;

template <class Ours, class Theirs>
constexpr bool passed_alike = sizeof(Ours) == sizeof(Theirs) && std::is_pointer_v<Ours> == std::is_pointer_v<Theirs>;

template <class Ours, class Theirs>
struct Alike : std::false_type {};
template <class R, class... A, class S, class... B>
struct Alike<R (*)(A...), S (*)(B...)> {
  static constexpr bool all() {
    if constexpr (sizeof...(A) == sizeof...(B)) return (passed_alike<A, B> && ... && passed_alike<R, S>);
    else return false;
  }
  static constexpr bool value = all();
};
#define CHECK(member, function) \
  static_assert(Alike<decltype(NvjpegApi::member), decltype(&function)>::value, #function)

CHECK(create, nvjpegCreateEx);
CHECK(destroy, nvjpegDestroy);
CHECK(state_create, nvjpegJpegStateCreate);
CHECK(state_destroy, nvjpegJpegStateDestroy);
CHECK(stream_create, nvjpegJpegStreamCreate);
CHECK(stream_destroy, nvjpegJpegStreamDestroy);
CHECK(parse_header, nvjpegJpegStreamParseHeader);
CHECK(params_create, nvjpegDecodeParamsCreate);
CHECK(params_destroy, nvjpegDecodeParamsDestroy);
CHECK(params_orientation, nvjpegDecodeParamsSetExifOrientation);
CHECK(frame_size, nvjpegJpegStreamGetFrameDimensions);
CHECK(subsampling, nvjpegJpegStreamGetChromaSubsampling);
CHECK(supported, nvjpegDecodeBatchedSupportedEx);
CHECK(initialize, nvjpegDecodeBatchedInitialize);
CHECK(preallocate, nvjpegDecodeBatchedPreAllocate);
CHECK(decode, nvjpegDecodeBatchedEx);
CHECK(driver_init, cuInit);
CHECK(device_get, cuDeviceGet);
CHECK(context_retain, cuDevicePrimaryCtxRetain);
CHECK(context_release, cuDevicePrimaryCtxRelease_v2);
CHECK(context_push, cuCtxPushCurrent_v2);
CHECK(context_pop, cuCtxPopCurrent_v2);
CHECK(stream_open, cuStreamCreate);
CHECK(stream_close, cuStreamDestroy_v2);
CHECK(event_create, cuEventCreate);
CHECK(event_destroy, cuEventDestroy_v2);
CHECK(event_record, cuEventRecord);
CHECK(event_wait, cuEventSynchronize);
CHECK(error_name, cuGetErrorName);

static_assert(sizeof(NvjpegImage) == sizeof(nvjpegImage_t) && NvjpegImage::kPlanes == NVJPEG_MAX_COMPONENT);
static_assert(offsetof(NvjpegImage, channel) == offsetof(nvjpegImage_t, channel));
static_assert(offsetof(NvjpegImage, pitch) == offsetof(nvjpegImage_t, pitch));
static_assert(kNvjpegHardware == NVJPEG_BACKEND_HARDWARE && kNvjpegYuv == NVJPEG_OUTPUT_YUV);
static_assert(kNvjpeg444 == NVJPEG_CSS_444 && kNvjpeg422 == NVJPEG_CSS_422 && kNvjpeg420 == NVJPEG_CSS_420);
static_assert(kNvjpeg440 == NVJPEG_CSS_440 && kNvjpegGray == NVJPEG_CSS_GRAY && kNvjpegRgbi == NVJPEG_OUTPUT_RGBI);
static_assert(kNvjpegBadJpeg == NVJPEG_STATUS_BAD_JPEG && kNvjpegUnsupportedJpeg == NVJPEG_STATUS_JPEG_NOT_SUPPORTED);
static_assert(kNvjpegArchitecture == NVJPEG_STATUS_ARCH_MISMATCH);
static_assert(kNvjpegNotImplemented == NVJPEG_STATUS_IMPLEMENTATION_NOT_SUPPORTED);
static_assert(kNvjpegIncomplete == NVJPEG_STATUS_INCOMPLETE_BITSTREAM);
static_assert(kCudaSleep == (CU_EVENT_BLOCKING_SYNC | CU_EVENT_DISABLE_TIMING));
static_assert(kNvjpegUpright == NVJPEG_ORIENTATION_NORMAL);
static_assert(kNvjpegAllocatorFailure == NVJPEG_STATUS_ALLOCATOR_FAILURE && kCudaNonBlocking == CU_STREAM_NON_BLOCKING);
static_assert(NVJPEG_STATUS_SUCCESS == 0 && CUDA_SUCCESS == 0 && NVJPEG_FLAGS_DEFAULT == 0);
