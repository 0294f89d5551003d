#include "batch/mixing.h"

#include <cstring>

#include "ops/blend.h"

namespace fastfeed {
namespace {

struct Part {
  int from_y, from_x, to_y, to_x, height, width;
};

void copy(const Image& from, const Part& part, Image& to) {
  const size_t channels = size_t(to.channels);
  for (int y = 0; y < part.height; ++y)
    std::memcpy(to.at + size_t(part.to_y + y) * to.row() + size_t(part.to_x) * channels,
                from.at + size_t(part.from_y + y) * from.row() + size_t(part.from_x) * channels,
                size_t(part.width) * channels);
}

}  // namespace

void mix_sample(const Program& program, const MixPlan& plan, size_t row, uint8_t* out, Scratch& scratch) {
  const Scratch::Frame frame(scratch);
  Image image{out, program.out_height, program.out_width, program.channels};
  if (program.conversion.tables || program.conversion.planar) image.at = scratch.memory(image.bytes());
  const auto member = [&](size_t k) {
    Image other = image;
    other.at = const_cast<uint8_t*>(plan.samples) + size_t(plan.members[row * plan.group + k]) * image.bytes();
    return other;
  };
  const int64_t* box = plan.box + 4 * row;
  switch (Mix(plan.how[row])) {
    case Mix::blend:
      blend_bytes(member(0).at, member(1).at, plan.shares[row * plan.group], image.at, image.bytes());
      break;
    case Mix::mosaic: {
      const int top = int(box[0]), left = int(box[1]), below = image.height - top, behind = image.width - left;
      copy(member(0), {below, behind, 0, 0, top, left}, image);
      copy(member(1), {below, 0, 0, left, top, behind}, image);
      copy(member(2), {0, behind, top, 0, below, left}, image);
      copy(member(3), {0, 0, top, left, below, behind}, image);
      break;
    }
    case Mix::paste:
    case Mix::as_is:
      std::memcpy(image.at, member(0).at, image.bytes());
      if (Mix(plan.how[row]) == Mix::paste) {
        const int top = int(box[0]), left = int(box[1]);
        copy(member(1), {top, left, top, left, int(box[2]), int(box[3])}, image);
      }
  }
  convert_image(program.conversion, image, Tables(), out);
}

}  // namespace fastfeed
