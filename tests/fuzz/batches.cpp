// Batches in flight for ThreadSanitizer and LeakSanitizer: read, decoded and rendered side by side on one pool, stopped
// and destroyed under way, while files vanish and are cut short.
#include <unistd.h>

#include <atomic>
#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <memory>
#include <random>
#include <string>
#include <thread>
#include <vector>

#include "batch/checks.h"
#include "batch/executor.h"
#include "expect.h"
#include "batch/pool.h"
#include "jpeg/jpeg_encoder.h"

using namespace fastfeed;
using Clock = std::chrono::steady_clock;

namespace {

constexpr int kFiles = 24, kBatch = 16, kSide = 24;

// Files that stay, in its first half, and others that come and go.
class Folder {
 public:
  Folder() {
    std::string name = (std::filesystem::temp_directory_path() / "fastfeed-batches-XXXXXX").string();
    expect(mkdtemp(name.data()) != nullptr, "there is room for files");
    folder_ = name;
    std::mt19937 random(1);
    JpegEncoder writer;
    for (int i = 0; i < kFiles; ++i) {
      const int height = 20 + int(random() % 90), width = 20 + int(random() % 90);
      std::vector<uint8_t> pixels(size_t(height) * size_t(width) * 3);
      for (size_t k = 0; k < pixels.size(); ++k) pixels[k] = uint8_t(k * size_t(i + 1) / 7 + random() % 32);
      expect(writer.write(pixels.data(), height, width, {80, true}), "a file is made");
      files_.push_back(writer.take());
      paths_.push_back((folder_ / (std::to_string(i) + ".jpg")).string());
      put(i, files_.back().size());
    }
  }
  ~Folder() { std::filesystem::remove_all(folder_); }
  void put(int i, size_t bytes) const {
    std::ofstream out(paths_[size_t(i)], std::ios::binary | std::ios::trunc);
    out.write(reinterpret_cast<const char*>(files_[size_t(i)].data()), std::streamsize(bytes));
  }
  void remove(int i) const { std::remove(path(i)); }
  const char* path(int i) const { return paths_[size_t(i)].c_str(); }
  size_t bytes(int i) const { return files_[size_t(i)].size(); }

 private:
  std::filesystem::path folder_;
  std::vector<std::string> paths_;
  std::vector<std::vector<uint8_t>> files_;
};

Program program() {
  Program made;
  made.height = made.width = made.out_height = made.out_width = kSide;
  made.border.mode = Border::reflect;
  made.conversion.planar = true;
  std::vector<uint8_t> table(256 * 3 * 4);
  for (size_t i = 0; i < table.size(); ++i) table[i] = uint8_t(i * 7);
  made.conversion.tables = std::make_shared<EntryTables>(table.data(), 3, 4);
  for (const char* name : {"brightness", "saturation", "sharpness", "equalize", "jpeg"}) {
    const Kind kind = kinds().at(name);
    made.layers.push_back({{{kind.code, kind.numbers, {}, {}, 0}}});
  }
  check(made);
  return made;
}

// One batch, as the executor makes them: its own arrays, the pool's threads, buffers of all.
class Batch {
 public:
  Batch(const Folder& folder, const Program& program, unsigned seed) : folder_(folder), program_(program), random_(seed) {
    for (int i = 0; i < kBatch; ++i) ids_.push_back(int(random_() % kFiles));
    samples_.resize(kBatch);
    choice_.assign(kBatch, 0), numbers_.assign(kBatch, 0), flips_ = std::make_unique<bool[]>(2 * kBatch);
    for (double& each : numbers_) each = 0.5 + double(random_() % 64) / 64;
    for (size_t k = 0; k < program.layers.size(); ++k) values_.layers.push_back({choice_.data(), {{numbers_.data(), {}}}});
  }

  // Whether it came to its end.
  bool make(Pool& pool, const std::shared_ptr<Buffers>& buffers, const std::function<bool()>& stopped) {
    std::vector<Buffers::Buffer> memory;
    for (int i = 0; i < kBatch; ++i) memory.emplace_back(nullptr, Buffers::Free{nullptr, 0});
    std::vector<int> read(kBatch, 0);
    std::atomic<int64_t> held{0};
    pool.run_behind(kBatch, [&](Worker&, int i) {
      Location location;
      location.path = folder_.path(ids_[size_t(i)]);
      Sample& sample = samples_[size_t(i)];
      sample.read = read_sample(location, *buffers, memory[size_t(i)], sample, held, nullptr);
      if (sample.read == Read::ok) probe(sample, program_.limits);
      read[size_t(i)] = 1;
    }, stopped);
    for (int done : read)
      if (!done) return false;
    for (const Sample& sample : samples_) {
      const double height = std::max(sample.height, 1), width = std::max(sample.width, 1);
      for (double each : {-0.1 * height, 0.2 * width, 0.7 * height, 0.8 * width}) boxes_.push_back(each);
      for (double each : {0.0, 0.0, height, width}) limits_.push_back(each);
    }
    values_.boxes = boxes_.data(), values_.limits = limits_.data(), values_.flips = flips_.get();
    const size_t row = program_.out_bytes();
    out_.assign(row * kBatch, 0);
    status_.assign(kBatch, Status::cancelled);
    pool.run_behind(kBatch, [&](Worker& worker, int i) {
      Spent spent;
      if (samples_[size_t(i)].read == Read::ok)
        status_[size_t(i)] = run_sample(program_, values_, size_t(i), samples_[size_t(i)], out_.data() + size_t(i) * row,
                                        row, worker, spent);
      read[size_t(i)] = 2;
    }, stopped);
    for (int done : read)
      if (done != 2) return false;
    for (int i = 0; i < kBatch; ++i)
      if (ids_[size_t(i)] < kFiles / 2) expect(status_[size_t(i)] == Status::ok, "a file that stays is decoded");
    return true;
  }

  uint64_t sum(int i) const {
    uint64_t sum = 0;
    for (size_t k = 0; k < program_.out_bytes(); ++k) sum = sum * 31 + out_[size_t(i) * program_.out_bytes() + k];
    return sum;
  }
  int id(int i) const { return ids_[size_t(i)]; }
  Status status(int i) const { return status_[size_t(i)]; }

 private:
  const Folder& folder_;
  const Program& program_;
  std::mt19937 random_;
  std::vector<int> ids_;
  std::vector<Sample> samples_;
  std::vector<Status> status_;
  std::vector<int64_t> choice_;
  std::vector<double> numbers_, boxes_, limits_;
  std::unique_ptr<bool[]> flips_;
  Values values_;
  std::vector<uint8_t> out_;
};

}  // namespace

int main(int argc, char** argv) {
  const auto end = Clock::now() + std::chrono::seconds(argc > 1 ? std::atoi(argv[1]) : 60);
  const Folder folder;
  const Program rules = program();
  std::atomic<bool> over{false};
  std::thread vandal([&] {
    std::mt19937 random(2);
    while (!over) {
      const int i = kFiles / 2 + int(random() % (kFiles / 2));
      if (random() % 3 == 0) folder.remove(i);
      else folder.put(i, random() % 2 ? folder.bytes(i) : random() % folder.bytes(i));
      std::this_thread::sleep_for(std::chrono::microseconds(200));
    }
  });
  std::atomic<long> made{0}, stopped{0}, destroyed{0};
  auto buffers = std::make_shared<Buffers>();
  for (unsigned round = 0; Clock::now() < end; ++round) {
    auto* pool = new Pool(1 + int(round % 4) + 1);
    std::atomic<bool> stop{false};
    std::atomic<int> begun{0};
    const bool stops = round % 3 == 1, dies = round % 3 == 2;
    std::vector<std::thread> callers;
    for (unsigned who = 0; who < 4; ++who)
      callers.emplace_back([&, who, seed = round * 4 + who] {
        for (unsigned k = 0; k < 6; ++k) {
          Batch batch(folder, rules, seed * 6 + k);
          ++begun;
          if (!batch.make(*pool, buffers, [&] { return stop.load(); })) {
            expect(stops, "a batch that no one stops comes to its end");
            ++stopped;
            return;
          }
          ++made;
          if (who || k || stops) continue;
          Batch again(folder, rules, seed * 6 + k);  // the same bytes, by any thread
          expect(again.make(*pool, buffers, [] { return false; }), "nothing stops it");
          for (int i = 0; i < kBatch; ++i)
            if (batch.id(i) < kFiles / 2) expect(batch.sum(i) == again.sum(i), "a sample has the same bytes each time");
        }
      });
    if (stops) {
      while (begun < 4) std::this_thread::yield();
      std::this_thread::sleep_for(std::chrono::milliseconds(round % 7));
      stop = true;
      pool->cancel();
    }
    for (auto& caller : callers) caller.join();
    if (dies) {
      std::atomic<int> waiting{0};
      std::vector<std::thread> runs;
      for (int who = 0; who < 3; ++who)
        runs.emplace_back([&, asked = false]() mutable {
          pool->run_behind(100000, [&](Worker& worker, int i) {
            const Scratch::Frame frame(worker.scratch);
            worker.scratch.memory(1000)[0] = uint8_t(i);
            std::this_thread::sleep_for(std::chrono::microseconds(20));
          }, [&] {
            if (!asked) ++waiting;
            asked = true;
            return false;
          });
        });
      while (waiting < 3) std::this_thread::yield();
      delete pool;
      pool = nullptr;
      for (auto& run : runs) run.join();
      ++destroyed;
    }
    delete pool;
  }
  over = true;
  vandal.join();
  std::printf("%ld batches, %ld stopped, %ld pools destroyed under way\n", made.load(), stopped.load(), destroyed.load());
}
