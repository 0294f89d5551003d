// nvJPEG and the CUDA driver as fastfeed calls them, on the processor, by libjpeg: planes as they are stored. Decoding is done
// when the host waits for its stream and not before, and what the documentation forbids is a status.
//
// A test tells it what goes wrong: `fake_set(what, value)`, and counts what is left over: `fake_get(what)`.
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <atomic>
#include <csetjmp>
#include <functional>
#include <string>
#include <vector>

#include <jpeglib.h>

namespace {

constexpr int kInvalid = 2, kBadJpeg = 3, kAllocator = 5, kFailed = 6, kArchitecture = 7, kYuv = 1;
constexpr int kNoDevice = 100, kNoContext = 201, kOutOfMemory = 2;

struct Settings {
  std::atomic<int> devices{1};        // GPUs
  std::atomic<int> no_engine{0};      // nvjpegCreateEx fails
  std::atomic<int> refused_width{0};  // images of this width are not supported
  std::atomic<int> bad_width{0};      // or fail only when they are decoded
  std::atomic<int> always_bad{0};     // or all do
  std::atomic<int> wrong{0};          // levels that are added to luma
  std::atomic<int> full{0};           // no memory left for decoding
  std::atomic<int> lost{0};           // waiting for a stream fails
  std::atomic<int> alive{0};          // handles, states, streams, parameters and contexts that were not given back
  std::atomic<int> decoded{0};        // images
  std::atomic<int> most{0};           // in one call
  std::atomic<int> taller{0};         // rows more than the file has, in nvJPEG's eyes
  std::atomic<int> asking{0};         // status of asking whether the engine decodes a file
  std::atomic<int> no_room{0};        // the driver has no memory for a stream
} settings;

thread_local int contexts = 0;  // pushed and not popped again

std::atomic<int> &setting(const std::string &what) {
  if (what == "devices") return settings.devices;
  if (what == "no_engine") return settings.no_engine;
  if (what == "refused_width") return settings.refused_width;
  if (what == "bad_width") return settings.bad_width;
  if (what == "always_bad") return settings.always_bad;
  if (what == "wrong") return settings.wrong;
  if (what == "full") return settings.full;
  if (what == "lost") return settings.lost;
  if (what == "decoded") return settings.decoded;
  if (what == "most") return settings.most;
  if (what == "taller") return settings.taller;
  if (what == "asking") return settings.asking;
  if (what == "no_room") return settings.no_room;
  if (what == "alive") return settings.alive;
  std::abort();
}

struct Handle { int unused; };
struct State { int batch = 0, format = -1; };
struct Parsed { int width = 0, height = 0, subsampling = -1; bool baseline = false; };
struct Params { int orientation = 0; };
struct Stream { std::vector<std::function<void()>> work; };
struct Event { Stream *stream = nullptr; };
struct Image { unsigned char *channel[4]; size_t pitch[4]; };

struct Errors { jpeg_error_mgr manager; std::jmp_buf back; };

template <class Task>
bool with_jpeg(const unsigned char *data, size_t size, Task task) {
  jpeg_decompress_struct info;
  Errors errors;
  info.err = jpeg_std_error(&errors.manager);
  errors.manager.error_exit = [](j_common_ptr base) { std::longjmp(reinterpret_cast<Errors *>(base->err)->back, 1); };
  errors.manager.output_message = [](j_common_ptr) {};
  if (setjmp(errors.back)) {
    jpeg_destroy_decompress(&info);
    return false;
  }
  jpeg_create_decompress(&info);
  jpeg_mem_src(&info, const_cast<unsigned char *>(data), static_cast<unsigned long>(size));
  jpeg_read_header(&info, TRUE);
  task(info);
  jpeg_destroy_decompress(&info);
  return true;
}

void write_planes(jpeg_decompress_struct &info, const Image &image) {
  info.raw_data_out = TRUE;
  info.out_color_space = info.jpeg_color_space;
  jpeg_start_decompress(&info);
  const int down = info.max_v_samp_factor * DCTSIZE;
  static thread_local std::vector<unsigned char> planes[3];
  JSAMPROW rows[3][4 * DCTSIZE];
  JSAMPARRAY arrays[3] = {rows[0], rows[1], rows[2]};
  for (int c = 0; c < info.num_components; ++c) {
    const jpeg_component_info &component = info.comp_info[c];
    planes[c].resize(size_t(component.width_in_blocks) * DCTSIZE * size_t(component.v_samp_factor) * DCTSIZE);
    for (int y = 0; y < component.v_samp_factor * DCTSIZE; ++y)
      rows[c][y] = planes[c].data() + size_t(y) * component.width_in_blocks * DCTSIZE;
  }
  while (info.output_scanline < info.output_height) {
    const int first = int(info.output_scanline);
    jpeg_read_raw_data(&info, arrays, JDIMENSION(down));
    for (int c = 0; c < info.num_components; ++c) {
      const jpeg_component_info &component = info.comp_info[c];
      const int begin = first / info.max_v_samp_factor * component.v_samp_factor;
      for (int y = 0; y < component.v_samp_factor * DCTSIZE && begin + y < int(component.downsampled_height); ++y)
        std::memcpy(image.channel[c] + size_t(begin + y) * image.pitch[c], rows[c][y], component.downsampled_width);
    }
  }
  jpeg_finish_decompress(&info);
  for (int y = 0; settings.wrong && y < int(info.output_height); ++y)
    for (int x = 0; x < int(info.output_width); ++x)
      image.channel[0][size_t(y) * image.pitch[0] + size_t(x)] += static_cast<unsigned char>(settings.wrong);
}

template <class Made>
int made(Made **where) {
  *where = new Made();
  ++settings.alive;
  return 0;
}

template <class Made>
int gone(Made *one) {
  delete one;
  --settings.alive;
  return 0;
}

}  // namespace

extern "C" {

void fake_set(const char *what, int value) { setting(what) = value; }
int fake_get(const char *what) { return setting(what); }

int cuInit(unsigned) { return settings.devices ? 0 : kNoDevice; }
int cuDeviceGet(int *device, int ordinal) {
  *device = ordinal;
  return ordinal < settings.devices ? 0 : 101;
}
int cuDevicePrimaryCtxRetain(void **context, int) {
  *context = &settings;
  ++settings.alive;
  return 0;
}
int cuDevicePrimaryCtxRelease_v2(int) { return --settings.alive, 0; }
int cuCtxPushCurrent_v2(void *context) { return context ? ++contexts, 0 : kNoContext; }
int cuCtxPopCurrent_v2(void **) { return contexts ? --contexts, 0 : kNoContext; }
int fake_contexts() { return contexts; }
int cuStreamCreate(Stream **stream, unsigned flags) {
  if (settings.no_room) return kOutOfMemory;
  return contexts && flags == 1 ? made(stream) : kNoContext;
}
int cuStreamDestroy_v2(Stream *stream) { return gone(stream); }
int cuEventCreate(Event **event, unsigned flags) { return contexts && flags == 3 ? made(event) : kNoContext; }
int cuEventDestroy_v2(Event *event) { return gone(event); }
int cuEventRecord(Event *event, Stream *stream) {
  event->stream = stream;
  return contexts ? 0 : kNoContext;
}
int cuEventSynchronize(Event *event) {
  if (!contexts) return kNoContext;
  for (const auto &work : event->stream->work) work();
  event->stream->work.clear();
  return settings.lost ? 700 : 0;
}
int cuGetErrorName(int error, const char **name) {
  *name = error == kOutOfMemory ? "CUDA_ERROR_OUT_OF_MEMORY" : error == kNoDevice ? "CUDA_ERROR_NO_DEVICE" : error == 700 ? "CUDA_ERROR_ILLEGAL_ADDRESS" : "CUDA_ERROR_INVALID_DEVICE";
  return 0;
}

int nvjpegCreateEx(int backend, void *device, void *pinned, unsigned flags, Handle **handle) {
  if (backend != 3 || device || pinned || flags) return kInvalid;
  return settings.no_engine ? settings.no_engine.load() : made(handle);
}
int nvjpegDestroy(Handle *handle) { return gone(handle); }
int nvjpegJpegStateCreate(Handle *, State **state) { return made(state); }
int nvjpegJpegStateDestroy(State *state) { return gone(state); }
int nvjpegJpegStreamCreate(Handle *, Parsed **parsed) { return made(parsed); }
int nvjpegJpegStreamDestroy(Parsed *parsed) { return gone(parsed); }
int nvjpegJpegStreamParseHeader(Handle *, const unsigned char *data, size_t size, Parsed *parsed) {
  return with_jpeg(data, size, [&](jpeg_decompress_struct &info) {
    parsed->width = int(info.image_width), parsed->height = int(info.image_height) + settings.taller;
    const jpeg_component_info &luma = info.comp_info[0];
    const int across = luma.h_samp_factor, down = luma.v_samp_factor;
    parsed->subsampling = info.num_components == 1 ? 6 : across == 2 ? (down == 2 ? 2 : 1) : down == 2 ? 3 : across == 1 ? 0 : 4;
    parsed->baseline = !info.progressive_mode && !jpeg_has_multiple_scans(&info);
  }) ? 0 : kBadJpeg;
}
int nvjpegDecodeParamsCreate(Handle *, Params **params) { return made(params); }
int nvjpegDecodeParamsDestroy(Params *params) { return gone(params); }
int nvjpegDecodeParamsSetExifOrientation(Params *params, int orientation) { return params->orientation = orientation, 0; }
int nvjpegJpegStreamGetFrameDimensions(Parsed *parsed, unsigned *width, unsigned *height) {
  *width = unsigned(parsed->width), *height = unsigned(parsed->height);
  return 0;
}
int nvjpegJpegStreamGetChromaSubsampling(Parsed *parsed, int *subsampling) { return *subsampling = parsed->subsampling, 0; }
int nvjpegDecodeBatchedSupportedEx(Handle *, Parsed *parsed, Params *, int *unsupported) {
  if (settings.asking) return settings.asking;
  *unsupported = !parsed->baseline || parsed->width == settings.refused_width;
  return 0;
}
int nvjpegDecodeBatchedInitialize(Handle *, State *state, int batch, int, int format) {
  state->batch = batch, state->format = format;
  return batch > 0 ? 0 : kInvalid;
}
int nvjpegDecodeBatchedPreAllocate(Handle *, State *, int, int, int, int, int) { return 0; }
int nvjpegDecodeBatchedEx(Handle *, State *state, const unsigned char *const *data, const size_t *sizes, Image *images,
                          Params **params, Stream *stream) {
  if (!contexts || state->format != kYuv) return kInvalid;
  if (settings.full) return kAllocator;
  for (int k = 0; k < state->batch; ++k) {
    Parsed parsed;
    if (nvjpegJpegStreamParseHeader(nullptr, data[k], sizes[k], &parsed)) return kBadJpeg;
    if (params[k]->orientation != 1) return kInvalid;
    if (settings.always_bad || parsed.width == settings.bad_width) return kFailed;
  }
  settings.decoded += state->batch;
  if (state->batch > settings.most) settings.most = state->batch;
  for (int k = 0; k < state->batch; ++k)
    stream->work.push_back([bytes = data[k], size = sizes[k], image = images[k]] {
      with_jpeg(bytes, size, [&](jpeg_decompress_struct &info) { write_planes(info, image); });
    });
  return 0;
}

}  // extern "C"
