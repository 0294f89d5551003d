// Finds the image in the data of a TFRecord.
#pragma once

#include <cstddef>
#include <cstdint>
#include <string>
#include <string_view>
#include <utility>
#include <variant>

namespace fastfeed {

// The image in `size` bytes: a tf.train.Example, and its checksum, which has to be right and `check`, unless that is 0.
// A null pointer where it is not there in the form that serializers write: sources/tfrecord.py reads any, and has the
// reason. `feature` is how the entry of the feature begins: tag, length and name.
std::pair<const uint8_t*, size_t> image_in_record(const uint8_t* data, size_t size, uint32_t check,
                                                  const std::string& feature);

// The value of a tf.train.Feature that holds one, as TensorFlow writes it; of others nothing.
using FeatureValue = std::variant<std::monostate, std::string_view, float, int64_t>;
FeatureValue single_value(std::string_view feature);

}  // namespace fastfeed
