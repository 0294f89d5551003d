# libjpeg-turbo, Highway and libwebp: the system's where it has the headers, else built from archives, as wheels do.
# FASTFEED_BUNDLED builds them in any case. Defines JPEG::JPEG, HWY_* and, if there is libwebp, WEBP_*.
if(NOT FASTFEED_BUNDLED)
  find_path(HWY_INCLUDE_DIR hwy/foreach_target.h)  # Highway: one source for every instruction set
  find_library(HWY_LIBRARY hwy)
  if(HWY_INCLUDE_DIR AND HWY_LIBRARY)
    find_package(JPEG)
  endif()
  if(JPEG_FOUND)
    find_path(WEBP_INCLUDE_DIR webp/decode.h)  # optional: without it Pillow decodes WebP
    find_library(WEBP_LIBRARY NAMES webpdecoder webp)
    return()
  endif()
  message(STATUS "No headers of libjpeg-turbo and Highway: both and libwebp are built from their archives, without SIMD in "
                 "libjpeg-turbo if NASM is missing")
  set(FASTFEED_BUNDLED ON)
  set(FASTFEED_REQUIRE_SIMD OFF)
endif()
include(${CMAKE_CURRENT_LIST_DIR}/bundled.cmake)
