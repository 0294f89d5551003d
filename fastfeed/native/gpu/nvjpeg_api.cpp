#include "gpu/nvjpeg_api.h"

#include <stdexcept>

#include "system/system.h"

namespace fastfeed {
namespace {

template <class Function>
void find(void* library, const std::string& path, const char* name, Function& function) {
  void* found = find_symbol(library, name);
  if (!found) throw std::runtime_error(path + " is too old: it has no " + name);
  function = reinterpret_cast<Function>(found);
}

void* opened(const std::string& path) {
  std::string why;
  if (void* library = open_library(path.c_str(), why)) return library;
  throw std::runtime_error(path + " cannot be loaded: " + why);
}

}  // namespace

NvjpegApi::NvjpegApi(const std::string& nvjpeg, const std::string& driver) {
  void* cuda = opened(driver);  // first: without a driver the other one is of no use
  find(cuda, driver, "cuInit", driver_init);
  find(cuda, driver, "cuDeviceGet", device_get);
  find(cuda, driver, "cuDevicePrimaryCtxRetain", context_retain);
  find(cuda, driver, "cuDevicePrimaryCtxRelease_v2", context_release);
  find(cuda, driver, "cuCtxPushCurrent_v2", context_push);
  find(cuda, driver, "cuCtxPopCurrent_v2", context_pop);
  find(cuda, driver, "cuStreamCreate", stream_open);
  find(cuda, driver, "cuStreamDestroy_v2", stream_close);
  find(cuda, driver, "cuEventCreate", event_create);
  find(cuda, driver, "cuEventDestroy_v2", event_destroy);
  find(cuda, driver, "cuEventRecord", event_record);
  find(cuda, driver, "cuEventSynchronize", event_wait);
  find(cuda, driver, "cuGetErrorName", error_name);

  void* library = opened(nvjpeg);
  find(library, nvjpeg, "nvjpegCreateEx", create);
  find(library, nvjpeg, "nvjpegDestroy", destroy);
  find(library, nvjpeg, "nvjpegJpegStateCreate", state_create);
  find(library, nvjpeg, "nvjpegJpegStateDestroy", state_destroy);
  find(library, nvjpeg, "nvjpegJpegStreamCreate", stream_create);
  find(library, nvjpeg, "nvjpegJpegStreamDestroy", stream_destroy);
  find(library, nvjpeg, "nvjpegJpegStreamParseHeader", parse_header);
  find(library, nvjpeg, "nvjpegDecodeParamsCreate", params_create);
  find(library, nvjpeg, "nvjpegDecodeParamsDestroy", params_destroy);
  find(library, nvjpeg, "nvjpegDecodeParamsSetExifOrientation", params_orientation);
  find(library, nvjpeg, "nvjpegJpegStreamGetFrameDimensions", frame_size);
  find(library, nvjpeg, "nvjpegJpegStreamGetChromaSubsampling", subsampling);
  find(library, nvjpeg, "nvjpegDecodeBatchedSupportedEx", supported);
  find(library, nvjpeg, "nvjpegDecodeBatchedInitialize", initialize);
  find(library, nvjpeg, "nvjpegDecodeBatchedPreAllocate", preallocate);
  find(library, nvjpeg, "nvjpegDecodeBatchedEx", decode);
}

}  // namespace fastfeed
