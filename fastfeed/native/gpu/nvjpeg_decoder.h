// Decodes JPEGs with the hardware engine of an NVIDIA GPU, into memory there: luma and chroma as they are stored. Everything
// that follows, beginning with the upsampling of chroma, is one CUDA kernel's: see backends/nvjpeg/windows.cu.
#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "gpu/nvjpeg_api.h"
#include "batch/samples.h"

namespace fastfeed {

// What a JPEG looks like in the GPU's memory: luma, then both planes of chroma, each at a multiple of 256 bytes.
struct PlanesLayout {
  int64_t bytes = 0;  // 0: the engine does not decode it, or not as the CPU does
  int64_t luma_bytes = 0, chroma_bytes = 0;  // of one plane
  int64_t width = 0, height = 0, pitch = 0;  // of luma
  int64_t chroma_width = 0, chroma_height = 0, chroma_pitch = 0;  // a width of 0: gray
  int64_t across = 1, down = 1;  // luma samples per chroma sample
  int64_t orientation = 1;  // EXIF's

  static PlanesLayout of(const Sample& sample);
};

// Some decoders of one GPU, each with a stream of its own, which share the files of a call. For one call at a time.
class NvjpegDecoder {
 public:
  // Throws std::runtime_error in one sentence: no library, driver, GPU or engine.
  NvjpegDecoder(const std::string& nvjpeg, const std::string& driver, int device, int decoders);
  ~NvjpegDecoder();
  NvjpegDecoder(const NvjpegDecoder&) = delete;
  NvjpegDecoder& operator=(const NvjpegDecoder&) = delete;

  // A row per sample; bytes are 0 where it is skipped, where the CPU shall decode it, and where the engine does not. The CPU
  // gets this share of what both decode, by the files' last bytes. Returns how many files it asked nvJPEG about.
  int plan(const std::vector<Sample>& samples, const bool* skip, double cpu_share, PlanesLayout* layouts);
  // Decodes some of the samples, `rows`, which `plan` has found decodable. addresses: where in the GPU's memory each lies.
  // Returns when all is there. refused[k]: whether nvJPEG did not decode it.
  void decode(const std::vector<Sample>& samples, const int64_t* rows, const uint64_t* addresses, size_t count,
              const PlanesLayout* layouts, bool* refused);

 private:
  struct One;  // decoder
  void close();
  template <class Task>
  void share_out(size_t count, const Task& task);  // task(decoder, first, last), at once

  const NvjpegApi api_;
  const int64_t process_;  // that made it
  int device_ = 0;
  CudaContext context_ = nullptr;
  std::vector<std::unique_ptr<One>> decoders_;
};

}  // namespace fastfeed
