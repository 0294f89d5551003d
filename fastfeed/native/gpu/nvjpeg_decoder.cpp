#include "gpu/nvjpeg_decoder.h"

#include <algorithm>
#include <atomic>
#include <cstring>
#include <exception>
#include <stdexcept>
#include <thread>

#include "jpeg/jpeg_header.h"
#include "system/checksums.h"
#include "system/system.h"

namespace fastfeed {
namespace {

constexpr size_t kBatch = 64;  // files that a decoder takes at a time: more were no faster on an H200
constexpr size_t kSigned = 256;  // bytes at a file's end that decide who decodes it
constexpr int64_t kPitch = 64;

int64_t padded(int64_t bytes) { return (bytes + 255) & ~int64_t(255); }
int64_t aligned(int64_t width) { return (width + kPitch - 1) / kPitch * kPitch; }

// nvJPEG's statuses, as its documentation names them.
const char* status_name(int status) {
  static const char* const names[] = {
      "success", "not initialized", "invalid parameter", "bad JPEG", "JPEG not supported", "allocator failure",
      "execution failed", "architecture mismatch", "internal error", "not supported", "incomplete bitstream"};
  return status >= 0 && status < int(std::size(names)) ? names[status] : "unknown";
}

void nvjpeg(int status, const char* what) {
  if (status)
    throw std::runtime_error(std::string(what) + ": nvJPEG says " + status_name(status) + " (status " +
                             std::to_string(status) + ")");
}

void cuda(const NvjpegApi& api, int error, const char* what) {
  if (!error) return;
  const char* name = nullptr;
  if (api.error_name(error, &name) || !name) name = "an unknown error";
  throw std::runtime_error(std::string(what) + ": CUDA says " + name);
}

// The GPU's context, current on this thread for a while; then the one that was before.
class Current {
 public:
  Current(const NvjpegApi& api, CudaContext context) : api_(api) {
    cuda(api, api.context_push(context), "the GPU's context");
  }
  Current(const Current&) = delete;
  Current& operator=(const Current&) = delete;
  ~Current() {
    CudaContext own = nullptr;
    api_.context_pop(&own);
  }

 private:
  const NvjpegApi& api_;
};

int subsampling_of(const PlanesLayout& layout) {
  if (!layout.chroma_width) return kNvjpegGray;
  return layout.across == 2 ? (layout.down == 2 ? kNvjpeg420 : kNvjpeg422) : layout.down == 2 ? kNvjpeg440 : kNvjpeg444;
}

bool cpu_decodes(const Sample& sample, double share) {
  if (share <= 0) return false;
  const size_t size = std::min(sample.size, kSigned);
  return double(crc32(sample.data + sample.size - size, size)) < share * 4294967296.0;
}

}  // namespace

PlanesLayout PlanesLayout::of(const Sample& sample) {
  PlanesLayout layout;
  const Header& header = sample.header;
  if (sample.read != Read::ok || sample.status != Status::ok || header.format != Format::jpeg) return layout;
  if (header.sof != 0xC0 || header.several_scans() || header.rgb) return layout;
  layout.width = header.width, layout.height = header.height, layout.pitch = aligned(header.width);
  layout.orientation = header.orientation;
  // gray: whether nvJPEG leaves chroma alone is not documented, so there is room for it
  layout.chroma_height = layout.height, layout.chroma_pitch = layout.pitch;
  if (header.components == 1 && header.sampling[0] != 0x11) return layout;
  if (header.components == 3) {
    const int across = header.sampling[0] >> 4, down = header.sampling[0] & 15;
    if (across < 1 || across > 2 || down < 1 || down > 2) return layout;
    if (header.sampling[1] != 0x11 || header.sampling[2] != 0x11) return layout;
    layout.across = across, layout.down = down;
    layout.chroma_width = (layout.width + across - 1) / across;
    layout.chroma_height = (layout.height + down - 1) / down;
    layout.chroma_pitch = aligned(layout.chroma_width);
  }
  // an engine accepts broken or truncated scans and fills them with gray, where the CPU names them
  if (!last_scan_ends(sample.data, sample.size)) return layout;
  layout.luma_bytes = padded(layout.pitch * layout.height);
  layout.chroma_bytes = padded(layout.chroma_pitch * layout.chroma_height);
  layout.bytes = layout.luma_bytes + 2 * layout.chroma_bytes;
  return layout;
}

struct NvjpegDecoder::One {
  explicit One(const NvjpegApi& api) : api(api) {}
  void open() {  // what fails half-way is given back by the destructor
    cuda(api, api.stream_open(&work, kCudaNonBlocking), "a stream");
    cuda(api, api.event_create(&done, kCudaSleep), "an event");
    const int status = api.create(kNvjpegHardware, nullptr, nullptr, 0, &handle);
    if (status == kNvjpegArchitecture || status == kNvjpegNotImplemented)
      throw std::runtime_error(std::string("this GPU has no JPEG engine that nvJPEG can use: it says ") +
                               status_name(status));
    nvjpeg(status, "nvjpegCreateEx");
    nvjpeg(api.state_create(handle, &state), "nvjpegJpegStateCreate");
    nvjpeg(api.stream_create(handle, &header), "nvjpegJpegStreamCreate");
    // a pool of memory that grows by itself: nvImageCodec's developers measured 20 % more with it. Without, it is slower
    static_cast<void>(api.preallocate(handle, state, 1, 1, 1, kNvjpeg444, kNvjpegRgbi));
    for (NvjpegParams& one : params) {
      nvjpeg(api.params_create(handle, &one), "nvjpegDecodeParamsCreate");
      nvjpeg(api.params_orientation(one, kNvjpegUpright), "nvjpegDecodeParamsSetExifOrientation");
    }
  }
  One(const One&) = delete;
  One& operator=(const One&) = delete;
  ~One() {
    if (done) wait();
    for (NvjpegParams one : params)
      if (one) api.params_destroy(one);
    if (header) api.stream_destroy(header);
    if (state) api.state_destroy(state);
    if (handle) api.destroy(handle);
    if (done) api.event_destroy(done);
    if (work) api.stream_close(work);
  }

  // CUDA's error.
  int wait() {
    const int error = api.event_record(done, work);
    return error ? error : api.event_wait(done);
  }

  // Whether nvJPEG decodes it on the engine, and sees the same picture in it: it writes as much as it sees.
  bool takes(const Sample& sample, const PlanesLayout& layout) {
    unsigned width = 0, height = 0;
    int subsampling = -1, unsupported = 1;
    int status = api.parse_header(handle, sample.data, sample.size, header);
    if (!status) status = api.frame_size(header, &width, &height);
    if (!status) status = api.subsampling(header, &subsampling);
    if (!status) status = api.supported(handle, header, params[0], &unsupported);
    const bool about_file = status == kNvjpegBadJpeg || status == kNvjpegUnsupportedJpeg || status == kNvjpegIncomplete;
    if (!about_file) nvjpeg(status, "asking whether the engine decodes a file");
    return !status && !unsupported && int64_t(width) == layout.width && int64_t(height) == layout.height &&
           subsampling == subsampling_of(layout);
  }

  // nvJPEG's status; once the host has waited for the stream, since the engine was seen to write without regard to it.
  int decode(const unsigned char** data, const size_t* lengths, NvjpegImage* images, size_t count) {
    int status = api.initialize(handle, state, int(count), 1, kNvjpegYuv);
    if (!status) status = api.decode(handle, state, data, lengths, images, params, work);
    cuda(api, wait(), "decoding");
    if (status == kNvjpegAllocatorFailure) nvjpeg(status, "decoding");
    return status;
  }

  const NvjpegApi& api;
  CudaStream work = nullptr;
  CudaEvent done = nullptr;
  NvjpegHandle handle = nullptr;
  NvjpegState state = nullptr;
  NvjpegStream header = nullptr;
  NvjpegParams params[kBatch] = {};
};

NvjpegDecoder::NvjpegDecoder(const std::string& nvjpeg, const std::string& driver, int device, int decoders)
    : api_(nvjpeg, driver), process_(process_id()) {
  if (decoders < 1 || decoders > 64) throw std::invalid_argument("decoders must be in [1, 64]");
  cuda(api_, api_.driver_init(0), "no GPU can be used");
  cuda(api_, api_.device_get(&device_, device), "no such GPU");
  cuda(api_, api_.context_retain(&context_, device_), "the GPU's context");
  try {
    const Current current(api_, context_);
    for (int k = 0; k < decoders; ++k) {
      decoders_.push_back(std::make_unique<One>(api_));
      decoders_.back()->open();
    }
  } catch (...) {
    close();
    throw;
  }
}

NvjpegDecoder::~NvjpegDecoder() {
  if (process_ != process_id()) {  // CUDA does not outlive a fork
    for (auto& one : decoders_) static_cast<void>(one.release());
    return;
  }
  close();
}

void NvjpegDecoder::close() {
  {
    const bool entered = api_.context_push(context_) == 0;  // nothing may be thrown here
    decoders_.clear();
    CudaContext own = nullptr;
    if (entered) api_.context_pop(&own);
  }
  api_.context_release(device_);
}

template <class Task>
void NvjpegDecoder::share_out(size_t count, const Task& task) {
  const size_t parts = std::min(decoders_.size(), count);
  std::vector<std::exception_ptr> errors(parts);
  const auto part = [&](size_t k) {
    try {
      const Current current(api_, context_);
      task(*decoders_[k], count * k / parts, count * (k + 1) / parts);
    } catch (...) {
      errors[k] = std::current_exception();
    }
  };
  std::vector<std::thread> threads;
  threads.reserve(parts);
  for (size_t k = 1; k < parts; ++k) {
    try {
      threads.emplace_back(part, k);
    } catch (const std::system_error&) {  // no more threads: this one does it
      part(k);
    }
  }
  if (parts) part(0);
  for (std::thread& thread : threads) thread.join();
  for (const std::exception_ptr& error : errors)
    if (error) std::rethrow_exception(error);
}

int NvjpegDecoder::plan(const std::vector<Sample>& samples, const bool* skip, double cpu_share, PlanesLayout* layouts) {
  std::atomic<int> baseline{0};
  share_out(samples.size(), [&](One& one, size_t first, size_t last) {
    for (size_t k = first; k < last; ++k) {
      layouts[k] = PlanesLayout();
      if (skip[k] || cpu_decodes(samples[k], cpu_share)) continue;
      layouts[k] = PlanesLayout::of(samples[k]);
      if (!layouts[k].bytes) continue;
      ++baseline;
      if (!one.takes(samples[k], layouts[k])) layouts[k].bytes = 0;
    }
  });
  return baseline;
}

void NvjpegDecoder::decode(const std::vector<Sample>& samples, const int64_t* rows, const uint64_t* addresses,
                           size_t count, const PlanesLayout* layouts, bool* refused) {
  share_out(count, [&](One& one, size_t first, size_t last) {
    const unsigned char* data[kBatch];
    size_t lengths[kBatch];
    NvjpegImage images[kBatch];
    for (size_t begin = first; begin < last; begin += kBatch) {
      const size_t n = std::min(kBatch, last - begin);
      for (size_t k = 0; k < n; ++k) {
        const PlanesLayout& layout = layouts[size_t(rows[begin + k])];
        const Sample& sample = samples[size_t(rows[begin + k])];
        data[k] = sample.data, lengths[k] = sample.size;
        unsigned char* at = reinterpret_cast<unsigned char*>(addresses[begin + k]);
        unsigned char* const chroma = at + layout.luma_bytes;
        images[k] = {{at, chroma, chroma + layout.chroma_bytes, nullptr},
                     {size_t(layout.pitch), size_t(layout.chroma_pitch), size_t(layout.chroma_pitch), 0}};
      }
      bool* const codes = refused + begin;
      const bool failed = one.decode(data, lengths, images, n) != 0;
      std::fill_n(codes, n, failed);
      // a single bad file fails the batch, and nvJPEG does not say which it is
      for (size_t k = 0; failed && n > 1 && k < n; ++k) codes[k] = one.decode(data + k, lengths + k, images + k, 1) != 0;
    }
  });
}

}  // namespace fastfeed
