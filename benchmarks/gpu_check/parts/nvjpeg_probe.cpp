// What NVIDIA's JPEG engine does, asked of nvJPEG itself: engines, rates by batch, threads and preallocation, decoding
// scaled by 1/2 to 1/8, regions, which files it refuses, and whether it waits for its stream.
//
//     c++ -O2 -std=c++17 nvjpeg_probe.cpp -lnvjpeg -lcudart -pthread -o nvjpeg_probe
//     ./nvjpeg_probe FOLDER SECONDS        JPEGs (*.jpg), seconds per row; prints one JSON object per line
//
// Written against nvjpeg.h 13.3. Without a GPU it says so in one sentence and ends with 2. On an H200 its first version found
// that nvjpegCreateExV2 takes no null allocators (status 2); nvjpegCreateEx does.
#include <cuda_runtime_api.h>
#include <nvjpeg.h>

#include <algorithm>
#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <iterator>
#include <stdexcept>
#include <string>
#include <thread>
#include <vector>

namespace {

using Clock = std::chrono::steady_clock;
using Bytes = std::vector<unsigned char>;

constexpr int kByCuda = 64;  // images per batch: for up to 50, nvJPEG's GPU_HYBRID decodes on the CPU

void cuda(cudaError_t status, const char *what) {
    if (status != cudaSuccess) throw std::runtime_error(std::string(what) + ": " + cudaGetErrorString(status));
}

void nvjpeg(nvjpegStatus_t status, const char *what) {
    if (status != NVJPEG_STATUS_SUCCESS) throw std::runtime_error(std::string(what) + ": nvJPEG status " + std::to_string(status));
}

struct File {
    Bytes bytes;
    int width = 0, height = 0;
    nvjpegChromaSubsampling_t chroma = NVJPEG_CSS_UNKNOWN;
};

struct Way {  // how a row decodes
    nvjpegBackend_t backend = NVJPEG_BACKEND_HARDWARE;
    int batch = 64, threads = 1;
    bool preallocate = false;
    nvjpegScaleFactor_t scale = NVJPEG_SCALE_NONE;
    int region = 0;  // side in pixels; 0: all of the image
};

// One decoder: handle, state, stream, and memory for a batch. Used by one thread.
class Decoder {
  public:
    Decoder(const std::vector<File> &files, const Way &way) : files_(files), way_(way) {
        nvjpeg(nvjpegCreateEx(way.backend, nullptr, nullptr, NVJPEG_FLAGS_DEFAULT, &handle_), "nvjpegCreateEx");
        nvjpeg(nvjpegJpegStateCreate(handle_, &state_), "nvjpegJpegStateCreate");
        cuda(cudaStreamCreateWithFlags(&stream_, cudaStreamNonBlocking), "cudaStreamCreate");
        nvjpeg(nvjpegDecodeBatchedInitialize(handle_, state_, way.batch, 1, NVJPEG_OUTPUT_RGBI), "nvjpegDecodeBatchedInitialize");
        int width = 0, height = 0;
        for (const File &file : files) width = std::max(width, file.width), height = std::max(height, file.height);
        if (way.preallocate)
            nvjpeg(nvjpegDecodeBatchedPreAllocate(handle_, state_, way.batch, width, height, files[0].chroma, NVJPEG_OUTPUT_RGBI),
                   "nvjpegDecodeBatchedPreAllocate");
        size_ = static_cast<size_t>(width) * height * 3;
        for (int k = 0; k < way.batch; ++k) {
            void *memory = nullptr;
            cuda(cudaMalloc(&memory, size_), "cudaMalloc");
            memory_.push_back(memory);
            nvjpegDecodeParams_t params = nullptr;
            nvjpeg(nvjpegDecodeParamsCreate(handle_, &params), "nvjpegDecodeParamsCreate");
            nvjpeg(nvjpegDecodeParamsSetOutputFormat(params, NVJPEG_OUTPUT_RGBI), "nvjpegDecodeParamsSetOutputFormat");
            if (way.scale != NVJPEG_SCALE_NONE) nvjpeg(nvjpegDecodeParamsSetScaleFactor(params, way.scale), "nvjpegDecodeParamsSetScaleFactor");
            params_.push_back(params);
        }
    }
    Decoder(const Decoder &) = delete;
    Decoder &operator=(const Decoder &) = delete;
    ~Decoder() {
        cudaStreamSynchronize(stream_);
        for (nvjpegDecodeParams_t params : params_) nvjpegDecodeParamsDestroy(params);
        for (void *memory : memory_) cudaFree(memory);
        cudaStreamDestroy(stream_);
        if (state_) nvjpegJpegStateDestroy(state_);
        if (handle_) nvjpegDestroy(handle_);
    }

    // Queues one batch, beginning with this file.
    void queue(size_t first) {
        std::vector<const unsigned char *> data;
        std::vector<size_t> lengths;
        std::vector<nvjpegImage_t> images;
        for (int k = 0; k < way_.batch; ++k) {
            const File &file = files_[(first + k) % files_.size()];
            int width = file.width, height = file.height;
            if (way_.region) {
                width = std::min(width, way_.region), height = std::min(height, way_.region);
                nvjpeg(nvjpegDecodeParamsSetROI(params_[k], (file.width - width) / 2, (file.height - height) / 2, width, height),
                       "nvjpegDecodeParamsSetROI");
            }
            nvjpegImage_t image{};
            image.channel[0] = static_cast<unsigned char *>(memory_[k]);
            image.pitch[0] = static_cast<size_t>((width + (1 << way_.scale) - 1) >> way_.scale) * 3;
            data.push_back(file.bytes.data());
            lengths.push_back(file.bytes.size());
            images.push_back(image);
        }
        if (way_.scale == NVJPEG_SCALE_NONE && !way_.region)
            nvjpeg(nvjpegDecodeBatched(handle_, state_, data.data(), lengths.data(), images.data(), stream_), "nvjpegDecodeBatched");
        else
            nvjpeg(nvjpegDecodeBatchedEx(handle_, state_, data.data(), lengths.data(), images.data(), params_.data(), stream_),
                   "nvjpegDecodeBatchedEx");
    }
    void wait() { cuda(cudaStreamSynchronize(stream_), "decoding"); }
    cudaStream_t stream() const { return stream_; }
    void *memory(int k) const { return memory_[k]; }
    size_t size() const { return size_; }

  private:
    const std::vector<File> &files_;
    Way way_;
    nvjpegHandle_t handle_ = nullptr;
    nvjpegJpegState_t state_ = nullptr;
    cudaStream_t stream_ = nullptr;
    std::vector<void *> memory_;
    std::vector<nvjpegDecodeParams_t> params_;
    size_t size_ = 0;
};

// Images per second with `threads` decoders at once; a JSON row, with the reason where nvJPEG refuses.
void rate(const std::string &row, const std::vector<File> &files, const Way &way, double seconds) {
    std::vector<std::string> faults(way.threads);
    std::vector<long> done(way.threads, 0);
    std::vector<double> took(way.threads, 0);
    std::vector<std::thread> threads;
    for (int t = 0; t < way.threads; ++t)
        threads.emplace_back([&, t] {
            try {
                cuda(cudaSetDevice(0), "cudaSetDevice");
                Decoder decoder(files, way);
                for (int k = 0; k < 2; ++k) decoder.queue(0), decoder.wait();  // memory has its size by then
                const auto start = Clock::now();
                auto elapsed = [&] { return std::chrono::duration<double>(Clock::now() - start).count(); };
                for (size_t first = t * 37; elapsed() < seconds; first += way.batch, done[t] += way.batch)
                    decoder.queue(first), decoder.wait();
                took[t] = elapsed();
            } catch (const std::exception &error) {
                faults[t] = error.what();
            }
        });
    for (std::thread &thread : threads) thread.join();
    double sum = 0;
    for (int t = 0; t < way.threads; ++t) sum += took[t] > 0 ? done[t] / took[t] : 0;
    std::printf("{\"row\": \"%s\", \"batch\": %d, \"threads\": %d, \"images_per_second\": %.1f, \"refused\": \"%s\"}\n", row.c_str(),
                way.batch, way.threads, sum, faults[0].c_str());
    std::fflush(stdout);
}

void sleeps(void *) { std::this_thread::sleep_for(std::chrono::milliseconds(5)); }

// Does decoding wait for its stream? A buffer is filled, the stream is held up, the buffer is copied away, and then the
// decoder is told to write to it: all on one stream. Whatever but the filling is in the copy was written too early.
void order(const std::vector<File> &files, bool synchronized, int tries) {
    Way way;
    way.batch = 1;
    Decoder decoder(files, way);
    unsigned char *copy = nullptr;
    cuda(cudaMallocHost(reinterpret_cast<void **>(&copy), decoder.size()), "cudaMallocHost");
    int corrupted = 0;
    decoder.queue(0), decoder.wait();
    for (int k = 0; k < tries; ++k) {
        cuda(cudaMemsetAsync(decoder.memory(0), 0xA5, decoder.size(), decoder.stream()), "cudaMemsetAsync");
        cuda(cudaLaunchHostFunc(decoder.stream(), sleeps, nullptr), "cudaLaunchHostFunc");
        cuda(cudaMemcpyAsync(copy, decoder.memory(0), decoder.size(), cudaMemcpyDeviceToHost, decoder.stream()), "cudaMemcpyAsync");
        if (synchronized) decoder.wait();
        decoder.queue(k);
        decoder.wait();
        corrupted += std::any_of(copy, copy + decoder.size(), [](unsigned char byte) { return byte != 0xA5; });
    }
    cudaFreeHost(copy);
    std::printf("{\"row\": \"order, %s\", \"tries\": %d, \"corrupted\": %d}\n",
                synchronized ? "the host waits for the stream first" : "queued behind other work", tries, corrupted);
    std::fflush(stdout);
}

// Whether this GPU has the engine: without one there is no such handle.
bool has_engine() {
    nvjpegHandle_t handle = nullptr;
    if (nvjpegCreateEx(NVJPEG_BACKEND_HARDWARE, nullptr, nullptr, NVJPEG_FLAGS_DEFAULT, &handle) != NVJPEG_STATUS_SUCCESS) return false;
    nvjpegDestroy(handle);
    return true;
}

// Files the engine takes; tells how many it refuses, such as progressive ones. Without an engine, all files.
std::vector<File> supported(const std::filesystem::path &folder, size_t most, bool engine) {
    nvjpegHandle_t handle = nullptr;
    nvjpegJpegStream_t stream = nullptr;
    nvjpeg(nvjpegCreateEx(engine ? NVJPEG_BACKEND_HARDWARE : NVJPEG_BACKEND_GPU_HYBRID, nullptr, nullptr, NVJPEG_FLAGS_DEFAULT, &handle),
           "nvjpegCreateEx");
    unsigned engines = 0, cores = 0;
    if (engine) nvjpeg(nvjpegGetHardwareDecoderInfo(handle, &engines, &cores), "nvjpegGetHardwareDecoderInfo");
    nvjpeg(nvjpegJpegStreamCreate(handle, &stream), "nvjpegJpegStreamCreate");
    std::vector<std::filesystem::path> paths;
    for (const auto &entry : std::filesystem::directory_iterator(folder))
        if (entry.path().extension() == ".jpg") paths.push_back(entry.path());
    std::sort(paths.begin(), paths.end());
    std::vector<File> files;
    int refused = 0;
    for (const auto &path : paths) {
        if (files.size() == most) break;
        std::ifstream in(path, std::ios::binary);
        File file{Bytes(std::istreambuf_iterator<char>(in), {})};
        int components = 0, widths[NVJPEG_MAX_COMPONENT], heights[NVJPEG_MAX_COMPONENT], unsupported = 1;
        nvjpeg(nvjpegGetImageInfo(handle, file.bytes.data(), file.bytes.size(), &components, &file.chroma, widths, heights),
               path.c_str());
        file.width = widths[0], file.height = heights[0];
        nvjpeg(nvjpegJpegStreamParseHeader(handle, file.bytes.data(), file.bytes.size(), stream), path.c_str());
        if (engine) nvjpeg(nvjpegDecodeBatchedSupported(handle, stream, &unsupported), "nvjpegDecodeBatchedSupported");
        else unsupported = 0;
        if (unsupported == 0) files.push_back(std::move(file));  // 0 says that it is supported
        else ++refused;
    }
    nvjpegJpegStreamDestroy(stream);
    nvjpegDestroy(handle);
    std::printf("{\"row\": \"engines\", \"engines\": %u, \"cores_per_engine\": %u, \"files\": %zu, \"refused_files\": %d}\n", engines,
                cores, files.size(), refused);
    std::fflush(stdout);
    if (files.empty()) throw std::runtime_error("the engine takes none of the files");
    return files;
}

}  // namespace

int main(int argc, char **argv) {
    if (argc != 3) return std::fprintf(stderr, "usage: nvjpeg_probe FOLDER SECONDS\n"), 64;
    int devices = 0;
    if (const cudaError_t status = cudaGetDeviceCount(&devices); status != cudaSuccess || devices == 0) {
        std::printf("{\"row\": \"no GPU\", \"reason\": \"no GPU is here: %s\"}\n", cudaGetErrorString(status));
        return 2;
    }
    const double seconds = std::atof(argv[2]);
    try {
        const bool engine = has_engine();
        const std::vector<File> files = supported(argv[1], 512, engine);
        const bool large = files[0].width * files[0].height > 2'000'000;
        const std::vector<int> batches = large ? std::vector<int>{8, 16} : std::vector<int>{32, 128};
        if (!engine) {
            std::printf("{\"row\": \"no JPEG engine\", \"reason\": \"this GPU has no JPEG engine: CUDA decodes\"}\n");
            for (int threads : {1, 2, 4}) {
                Way way;
                way.batch = std::max(kByCuda, batches.back()), way.threads = threads, way.backend = NVJPEG_BACKEND_GPU_HYBRID;
                rate("CUDA, no engine", files, way, seconds);
            }
            return 0;
        }
        order(files, false, 200);  // whether it is safe, first
        order(files, true, 200);
        for (int batch : batches)
            for (int threads : {4, 8, 2, 1}) {
                Way way;
                way.batch = batch, way.threads = threads;
                rate("hardware", files, way, seconds);
            }
        Way way;
        way.batch = batches.front();
        way.threads = 4;
        way.preallocate = true;
        rate("hardware, preallocated", files, way, seconds);
        way.preallocate = false;
        for (int scale = NVJPEG_SCALE_NONE; scale <= NVJPEG_SCALE_1_BY_8; ++scale) {
            way.scale = static_cast<nvjpegScaleFactor_t>(scale);
            rate("scaled by 1/" + std::to_string(1 << scale), files, way, seconds);
        }
        way.scale = NVJPEG_SCALE_NONE;
        for (int region : {224, 448, 1024}) way.region = region, rate("region of " + std::to_string(region), files, way, seconds);
        way.region = 0, way.batch = std::max(kByCuda, way.batch), way.backend = NVJPEG_BACKEND_GPU_HYBRID;
        rate("CUDA, no engine", files, way, seconds);
    } catch (const std::exception &error) {
        std::printf("{\"row\": \"ended\", \"reason\": \"%s\"}\n", error.what());
        return 1;
    }
    return 0;
}
