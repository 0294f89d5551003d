// Bindings of what `fastfeed doctor` says of the decoder.
#include <nanobind/stl/string.h>

#include "bindings/bindings.h"
#include "jpeg/libjpeg.h"
#include "webp/webp.h"

namespace fastfeed {

void bind_libjpeg(nb::module_& m) {
#ifdef FASTFEED_BUNDLED
  constexpr bool bundled = true;
#else
  constexpr bool bundled = false;
#endif
  m.attr("LIBJPEG_TURBO") = libjpeg_version();
  m.attr("LIBJPEG_SIMD") = libjpeg_simd();
  m.attr("LIBJPEG_BUNDLED") = bundled;
  m.attr("LIBWEBP") = libwebp_version();
  m.def("libjpeg_huffman_reason", [] { return libjpeg_huffman_reason(); },
        "Why libjpeg's own Huffman decoders are used, at half the speed; an empty text where ours are.");
}

}  // namespace fastfeed
