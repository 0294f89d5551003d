// Scaling of pixels that something else decodes, strip by strip, from Python.
#include <stdexcept>
#include <utility>
#include <vector>

#include "bindings/bindings.h"
#include "batch/checks.h"
#include "decode/resample.h"

namespace fastfeed {
namespace {

using Strip = nb::ndarray<const uint8_t, nb::ndim<3>, nb::c_contig, nb::device::cpu>;
using Scaled = nb::ndarray<uint8_t, nb::shape<-1, -1, 3>, nb::c_contig, nb::device::cpu>;

// One image: a box of it, in pixels, is scaled into `out`.
class Scaler {
 public:
  Scaler(int height, int width, double top, double left, double rows, double columns, Scaled out, int filter)
      : out_(std::move(out)), width_(width) {
    const bool sane = height >= 1 && width >= 1 && height <= kMostSide && width <= kMostSide && rows > 0 && columns > 0 &&
                      top >= 0 && left >= 0 && top + rows <= height && left + columns <= width;
    if (!sane) throw std::invalid_argument("a box lies outside its image");
    if (filter < 0 || filter >= kFilters) throw std::invalid_argument("filter must be in [0, 5]");
    if (!out_.shape(0) || !out_.shape(1) || out_.shape(0) > kMostSide || out_.shape(1) > kMostSide)
      throw std::invalid_argument("sides of out must be in [1, 2^24]");
    vertical_.set(Filter(filter), top, rows, height, int(out_.shape(0)));
    horizontal_.set(Filter(filter), left, columns, width, int(out_.shape(1)));
    resampler_.begin(&vertical_, &horizontal_, 0, {out_.data(), ptrdiff_t(out_.shape(1)) * 3, 3});
    next_ = vertical_.low();
  }
  Scaler(const Scaler&) = delete;
  Scaler& operator=(const Scaler&) = delete;

  void push(const Strip& strip) {
    const int channels = int(strip.shape(2));
    if ((channels != 1 && channels != 3) || strip.shape(1) != size_t(width_))
      throw std::invalid_argument("a strip must be as wide as its image, of one channel or three");
    if (strip.shape(0) > size_t(last() - next_)) throw std::invalid_argument("a strip has more rows than are read");
    const int rows = int(strip.shape(0));
    next_ += rows;
    GilRelease release;
    const size_t row = size_t(width_) * 3;
    if (channels == 3) {
      resampler_.push(strip.data(), row, rows);
      return;
    }
    three_.resize(row);
    for (int y = 0; y < rows; ++y) {
      const uint8_t* gray = strip.data() + size_t(y) * size_t(width_);
      for (size_t x = 0; x < size_t(width_); ++x) three_[3 * x] = three_[3 * x + 1] = three_[3 * x + 2] = gray[x];
      resampler_.push(three_.data(), row, 1);
    }
  }

  int first() const { return vertical_.low(); }
  int last() const { return vertical_.high(); }

 private:
  Scaled out_;
  Axis vertical_, horizontal_;
  Resampler resampler_;
  std::vector<uint8_t> three_;
  int width_, next_;
};

}  // namespace

void bind_scaling(nb::module_& m) {
  nb::class_<Scaler>(m, "Scaler")
      .def(nb::init<int, int, double, double, double, double, Scaled, int>(), nb::arg("height"), nb::arg("width"),
           nb::arg("top"), nb::arg("left"), nb::arg("rows"), nb::arg("columns"), nb::arg("out").noconvert(),
           nb::arg("filter"))
      .def("push", &Scaler::push, nb::arg("strip"))
      .def_prop_ro("first", &Scaler::first)
      .def_prop_ro("last", &Scaler::last);
}

}  // namespace fastfeed
