// Decodes every file of the folders given, whole and through many windows; with --calls N at least N times in all.
#include <algorithm>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <iterator>
#include <map>
#include <random>
#include <string>
#include <vector>

#include "decode/worker.h"
#include "decode/probe.h"

using namespace fastfeed;

namespace {

const char* const kNames[] = {"ok", "truncated", "corrupt", "unsupported_format", "bomb", "not_image", "cancelled"};
using Bytes = std::vector<uint8_t>;

Bytes read(const std::filesystem::path& path) {
  std::ifstream in(path, std::ios::binary);
  return Bytes(std::istreambuf_iterator<char>(in), {});
}

// The pixels of one region, or nothing where the file is not sound. `plain`: by libjpeg alone.
bool region(RowReader& reader, const Bytes& file, const Header& header, const Region& want, bool plain, Bytes& out) {
  out.clear();
  Status status = reader.start(file.data(), file.size(), header, want, plain);
  if (status == Status::ok) {
    const int skip = want.left - reader.left();
    for (int y = 0; y < want.height;) {
      const RowReader::Rows rows = reader.rows();
      if (!rows.count) break;
      for (int i = 0; i < rows.count && y < want.height; ++i, ++y) {
        const uint8_t* row = rows.at + size_t(i) * rows.stride;
        out.insert(out.end(), row + ptrdiff_t(skip) * 3, row + ptrdiff_t(skip + want.width) * 3);
      }
    }
    status = reader.finish();
  }
  return reader.gave_up() ? region(reader, file, header, want, true, out) : status == Status::ok;
}

// Whether parts are what the whole has there: skipping rows and cropping columns is where libjpeg had its errors.
int differing(const Bytes& file, const Header& header, std::mt19937& random) {
  constexpr int kContext = 2;  // the kernel asks for as much more on both sides
  const auto reader = libjpeg_reader(true);
  int wrong = 0;
  Bytes whole, part;
  for (int d : {1, 2, 4, 8}) {
    const int height = (header.height + d - 1) / d, width = (header.width + d - 1) / d;
    if (!region(*reader, file, header, {d, 0, 0, height, width}, true, whole)) return wrong;
    for (int i = 0; i < 8; ++i) {
      Region want;
      want.denominator = d;
      want.height = 1 + int(random() % unsigned(std::min(height, 40)));
      want.width = 1 + int(random() % unsigned(std::min(width, 40)));
      want.top = int(random() % unsigned(height - want.height + 1));
      want.left = int(random() % unsigned(width - want.width + 1));
      Region asked = want;
      asked.left = std::max(want.left - kContext, 0);
      asked.width = std::min(want.left + want.width + kContext, width) - asked.left;
      if (!region(*reader, file, header, asked, false, part)) {
        ++wrong;
        continue;
      }
      for (int y = 0; y < want.height; ++y)
        if (std::memcmp(&part[(size_t(y) * asked.width + size_t(want.left - asked.left)) * 3],
                        &whole[(size_t(want.top + y) * width + want.left) * 3], size_t(want.width) * 3)) {
          ++wrong;
          break;
        }
    }
  }
  return wrong;
}

}  // namespace

int main(int argc, char** argv) {
  long calls = 0, done = 0;
  std::vector<Bytes> files;
  std::vector<std::string> names;
  for (int i = 1; i < argc; ++i) {
    if (!std::strcmp(argv[i], "--calls") && i + 1 < argc) {
      calls = std::atol(argv[++i]);
      continue;
    }
    if (!std::filesystem::exists(argv[i])) continue;
    for (const auto& entry : std::filesystem::recursive_directory_iterator(argv[i]))
      if (entry.is_regular_file()) {
        files.push_back(read(entry.path())), names.push_back(entry.path().string());
        // the fuzz target's own inputs begin with eight bytes that say what is asked for
        if (entry.path().parent_path().filename() == "inputs" && files.back().size() > 8)
          files.back().erase(files.back().begin(), files.back().begin() + 8);
      }
  }
  if (files.empty()) return std::fprintf(stderr, "no files\n"), 2;
  std::mt19937 random(1);
  Worker worker;
  const Limits limits;
  std::map<std::string, int> outcome;
  int wrong = 0;
  for (bool first = true; first || done < calls; first = false)
    for (size_t i = 0; i < files.size() && (first || done < calls); ++i) {
      const Header header = read_header(files[i].data(), files[i].size());
      if (calls && int64_t(header.height) * header.width > 1000000) continue;
      const double rows = std::max(header.shown_height(), 1), columns = std::max(header.shown_width(), 1);
      for (int k = 0; k < 5; ++k) {
        const int height = 1 + int(random() % 64), width = 1 + int(random() % 64);
        const double h = k ? 1 + random() % unsigned(rows) : rows, w = k ? 1 + random() % unsigned(columns) : columns;
        const Window window{k ? double(random() % unsigned(rows - h + 1)) : 0,
                            k ? double(random() % unsigned(columns - w + 1)) : 0, h, w, bool(k & 1), bool(k & 2)};
        Bytes pixels(size_t(height) * width * 3);
        const Status status = worker.decode(files[i].data(), files[i].size(), window, Filter(k % 4), limits,
                                            {pixels.data(), ptrdiff_t(width) * 3, height, width});
        ++done;
        if (first && !k) ++outcome[kNames[int(status)]];
      }
      if (first && !calls && admit(header, files[i].size(), limits) == Status::ok &&
          int64_t(header.height) * header.width < 20000000) {
        const int bad = differing(files[i], header, random);
        if (bad) std::printf("%s: %d parts differ from the whole\n", names[i].c_str(), bad);
        wrong += bad;
      }
    }
  std::printf("%zu files, %ld decode calls", files.size(), done);
  for (const auto& [name, count] : outcome) std::printf(", %d %s", count, name.c_str());
  std::printf("\n");
  return wrong ? 1 : 0;
}
