// Metadata columns of many samples, read by one call.
#include <Python.h>

#include <optional>
#include <stdexcept>
#include <string>
#include <string_view>

#include "bindings/calls.h"
#include "batch/tf_record.h"
#include "batch/values.h"

namespace fastfeed {
namespace {

// Of an integer, with its sign; longer ones are left to Python, which limits them.
constexpr size_t kDigits = 18;

nb::object number(std::string_view text) {
  const JsonNumber kind = json_number(text);
  if (kind == JsonNumber::none || (kind == JsonNumber::whole && text.size() > kDigits)) return nb::object();
  const std::string copy(text);  // with a zero behind it
  if (kind == JsonNumber::whole) return nb::steal(PyLong_FromString(copy.c_str(), nullptr, 10));
  const double value = PyOS_string_to_double(copy.c_str(), nullptr, nullptr);
  if (value == -1.0 && PyErr_Occurred()) throw nb::python_error();
  return nb::steal(PyFloat_FromDouble(value));
}

// Null where it is not UTF-8, or begins with a byte order mark, which is not part of all formats' texts.
nb::object text_of(std::string_view value) {
  if (value.substr(0, 3) == "\xEF\xBB\xBF") return nb::object();
  nb::object text = nb::steal(PyUnicode_DecodeUTF8(value.data(), Py_ssize_t(value.size()), nullptr));
  if (!text.is_valid()) PyErr_Clear();
  return text;
}

nb::object feature_of(std::string_view value) {
  const FeatureValue feature = single_value(value);
  if (const auto* text = std::get_if<std::string_view>(&feature)) return text_of(*text);
  if (const auto* real = std::get_if<float>(&feature)) return nb::steal(PyFloat_FromDouble(double(*real)));
  if (const auto* whole = std::get_if<int64_t>(&feature)) return nb::steal(PyLong_FromLongLong(*whole));
  return nb::object();
}

// A value per location: for kind "t" a text, for "n" an int or float if it is a JSON number, for "f" a text, int or float
// if it is a tf.train.Feature of one; bytes for other kinds, and where that is not what they are. None for what is not to
// be read, or has to be read by Python, which knows why. `kinds`: of the columns, again and again.
nb::list read_values(const Locations& locations, const nb::bytes& kinds) {
  if (!kinds.size() || locations.all.size() % kinds.size())
    throw std::invalid_argument("kinds must have one entry per column");
  std::optional<ColumnValues> values;
  {
    const GilRelease release;
    values.emplace(locations.all);
  }
  nb::list result;
  for (size_t i = 0; i < locations.all.size(); ++i) {
    if (!values->is_read(i)) {
      result.append(nb::none());
      continue;
    }
    const std::string_view value = (*values)[i];
    const char kind = kinds.c_str()[i % kinds.size()];
    nb::object object;
    if (kind == 't') object = text_of(value);
    if (kind == 'n') object = number(value);
    if (kind == 'f') object = feature_of(value);
    result.append(object.is_valid() ? object : nb::bytes(value.data(), value.size()));
  }
  return result;
}

}  // namespace

void bind_values(nb::module_& m) {
  m.def("read_values", &read_values, nb::arg("locations"), nb::arg("kinds"));
}

}  // namespace fastfeed
