// libFuzzer target: formats other than images that are read natively. The first byte says what follows: if even, a piece
// of a Chrome trace, else a tf.train.Example, whose checksum is made here.
#include <cstdlib>
#include <string>
#include <utility>
#include <vector>

#include "system/checksums.h"
#include "expect.h"
#include "batch/tf_record.h"
#include "traces/trace_events.h"

using namespace fastfeed;

namespace {

void scan(const char* data, size_t size) {
  const std::string piece(data, size);  // of its own, so that AddressSanitizer sees its end
  EventColumns rows;
  std::vector<std::pair<size_t, size_t>> others;
  EventScanner scanner;
  scanner.scan(piece, rows, others);
  const size_t count = rows.cat.size();
  expect(count == rows.start.size() && count == rows.args_size.size() && count == rows.stream.size(), "columns of one length");
  for (size_t i = 0; i < count; ++i) {
    expect(size_t(rows.cat[i]) < scanner.cats().size() && size_t(rows.name[i]) < scanner.names().size(), "texts that exist");
    expect(rows.start[i] >= 0 && rows.end[i] >= rows.start[i], "times in order");
    expect(size_t(rows.args_at[i] + rows.args_size[i]) <= size, "arguments in the piece");
  }
  size_t before = 0;
  for (const auto& [at, length] : others) {
    expect(at >= before && at + length <= size, "texts in order");
    before = at + length;
  }
}

void record(const char* data, size_t size) {
  std::vector<uint8_t> bytes(data, data + size);  // of its own, so that AddressSanitizer sees its end
  const uint32_t crc = crc32c(bytes.data(), size), check = (crc >> 15 | crc << 17) + 0xA282EAD8;
  for (int shift = 0; shift < 32; shift += 8) bytes.push_back(uint8_t(check >> shift));
  for (const std::string feature : {"\x0a\x0dimage/encoded", "\x0a\x01i", "\x0a"}) {
    const auto [image, length] = image_in_record(bytes.data(), bytes.size(), 0, feature);
    if (!image) continue;
    expect(image >= bytes.data() && image + length <= bytes.data() + size, "an image in its record");
    expect(image_in_record(bytes.data(), bytes.size(), check, feature).first == image, "the same with its checksum");
    expect(!image_in_record(bytes.data(), bytes.size(), check + 1, feature).first || check + 1 == 0, "no other checksum");
  }
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  if (!size) return 0;
  const char* rest = reinterpret_cast<const char*>(data) + 1;
  if (data[0] % 2) record(rest, size - 1);
  else scan(rest, size - 1);
  return 0;
}
