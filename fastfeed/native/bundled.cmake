# libjpeg-turbo, libwebp and Highway, built from source and linked statically: for wheels, which may need nothing of the
# machine.
#
# LIBJPEG_SOURCE, LIBWEBP_SOURCE and HIGHWAY_SOURCE (CMake or environment) name another archive, a path or a URL;
# LIBJPEG_SHA256 and so on what it must hash to, if it is not one of the archives below. Defines JPEG::JPEG, WEBP_* and HWY_*.
include(ExternalProject)

if(NOT DEFINED FASTFEED_REQUIRE_SIMD)
  set(FASTFEED_REQUIRE_SIMD ON)
endif()

set(LIBJPEG_VERSION 3.1.3)
set(LIBWEBP_VERSION 1.6.0)
set(HIGHWAY_VERSION 1.3.0)

# Downloads an archive, or takes the one named, checks its hash and extracts it. Sets ${name}_DIR and ${name}_HASH.
function(extract name default_url)
  set(source "$ENV{${name}_SOURCE}")
  set(hashes "$ENV{${name}_SHA256}")
  if(${name}_SOURCE)
    set(source "${${name}_SOURCE}")
  endif()
  if(${name}_SHA256)
    set(hashes "${${name}_SHA256}")
  endif()
  if(NOT source)
    set(source "${default_url}")
  endif()
  if(NOT hashes)
    set(hashes ${ARGN})
  endif()
  if(EXISTS "${source}")
    set(archive "${source}")
  else()
    set(archive "${CMAKE_BINARY_DIR}/archives/${name}.tar.gz")
    file(DOWNLOAD "${source}" "${archive}" STATUS status TLS_VERIFY ON)
    list(GET status 0 code)
    if(NOT code EQUAL 0)
      message(FATAL_ERROR "${name}_SOURCE: ${source} is neither a file nor can it be downloaded (${status}). "
                          "Set ${name}_SOURCE to the path or URL of the archive.")
    endif()
  endif()
  file(SHA256 "${archive}" hash)
  if(NOT hash IN_LIST hashes)
    string(REPLACE ";" " or " wanted "${hashes}")
    message(FATAL_ERROR "${source}: the SHA-256 must be ${wanted}, got ${hash}. "
                        "If this archive is the one you mean, set ${name}_SHA256=${hash}.")
  endif()
  set(folder "${CMAKE_BINARY_DIR}/sources/${name}-${hash}")
  if(NOT EXISTS "${folder}/.extracted")
    file(REMOVE_RECURSE "${folder}")
    file(ARCHIVE_EXTRACT INPUT "${archive}" DESTINATION "${folder}")
    file(TOUCH "${folder}/.extracted")
  endif()
  file(GLOB folders LIST_DIRECTORIES true "${folder}/*")
  list(FILTER folders EXCLUDE REGEX "/\\.extracted$")
  set(${name}_DIR "${folders}" PARENT_SCOPE)
  set(${name}_HASH "${hash}" PARENT_SCOPE)
endfunction()

# The release's archive, and that of its tag, which is Debian's orig.tar.gz as well.
extract(LIBJPEG
  "https://github.com/libjpeg-turbo/libjpeg-turbo/releases/download/${LIBJPEG_VERSION}/libjpeg-turbo-${LIBJPEG_VERSION}.tar.gz"
  075920b826834ac4ddf97661cc73491047855859affd671d52079c6867c1c6c0
  3a13a5ba767dc8264bc40b185e41368a80d5d5f945944d1dbaa4b2fb0099f4e5)
extract(LIBWEBP
  "https://storage.googleapis.com/downloads.webmproject.org/releases/webp/libwebp-${LIBWEBP_VERSION}.tar.gz"
  e4ab7009bf0629fd11982d4c2aa83964cf244cffba7347ecd39019a9e38c4564)
extract(HIGHWAY "https://github.com/google/highway/archive/refs/tags/${HIGHWAY_VERSION}.tar.gz"
  07b3c1ba2c1096878a85a31a5b9b3757427af963b1141ca904db2f9f4afe0bc2)

# The same options for all: static, position independent, hidden, without the build folder's name in the code.
set(bundled_root "${CMAKE_BINARY_DIR}/bundled")
if(FASTFEED_KERNEL)
  set(bundled_root "${FASTFEED_KERNEL}/bundled")
endif()
set(bundled_flags "${CMAKE_C_FLAGS}")
set(bundled_cxx_flags "${CMAKE_CXX_FLAGS}")
if(NOT MSVC)
  string(APPEND bundled_flags " -ffile-prefix-map=${CMAKE_BINARY_DIR}=.")
  string(APPEND bundled_cxx_flags " -ffile-prefix-map=${CMAKE_BINARY_DIR}=.")
endif()
set(bundled_arguments
  -DCMAKE_BUILD_TYPE=Release
  -DCMAKE_INSTALL_PREFIX=${bundled_root}
  -DCMAKE_INSTALL_LIBDIR=lib
  -DCMAKE_POSITION_INDEPENDENT_CODE=ON
  -DCMAKE_POLICY_VERSION_MINIMUM=3.5
  -DCMAKE_C_COMPILER=${CMAKE_C_COMPILER}
  -DCMAKE_CXX_COMPILER=${CMAKE_CXX_COMPILER}
  "-DCMAKE_C_FLAGS=${bundled_flags}"
  "-DCMAKE_CXX_FLAGS=${bundled_cxx_flags}"
  -DCMAKE_C_VISIBILITY_PRESET=hidden
  -DCMAKE_CXX_VISIBILITY_PRESET=hidden)
if(CMAKE_OSX_ARCHITECTURES)
  list(APPEND bundled_arguments "-DCMAKE_OSX_ARCHITECTURES=${CMAKE_OSX_ARCHITECTURES}")
endif()
if(CMAKE_OSX_DEPLOYMENT_TARGET)
  list(APPEND bundled_arguments "-DCMAKE_OSX_DEPLOYMENT_TARGET=${CMAKE_OSX_DEPLOYMENT_TARGET}")
endif()
if(MSVC)
  set(libjpeg_name jpeg-static)
else()
  set(libjpeg_name jpeg)
endif()
set(libjpeg_file "${bundled_root}/lib/${CMAKE_STATIC_LIBRARY_PREFIX}${libjpeg_name}${CMAKE_STATIC_LIBRARY_SUFFIX}")
set(webp_file "${bundled_root}/lib/${CMAKE_STATIC_LIBRARY_PREFIX}webpdecoder${CMAKE_STATIC_LIBRARY_SUFFIX}")
set(hwy_file "${bundled_root}/lib/${CMAKE_STATIC_LIBRARY_PREFIX}hwy${CMAKE_STATIC_LIBRARY_SUFFIX}")

if(NOT FASTFEED_KERNEL)
  # REQUIRE_SIMD: without NASM a wheel would be three times slower, without a word. BUILD: else the date.
  ExternalProject_Add(libjpeg_turbo SOURCE_DIR "${LIBJPEG_DIR}" DOWNLOAD_COMMAND ""
    CMAKE_ARGS ${bundled_arguments} -DENABLE_SHARED=OFF -DENABLE_STATIC=ON -DREQUIRE_SIMD=${FASTFEED_REQUIRE_SIMD} -DWITH_TURBOJPEG=OFF
               -DWITH_TOOLS=OFF -DWITH_TESTS=OFF -DWITH_JAVA=OFF -DWITH_CRT_DLL=ON -DBUILD=0
    BUILD_BYPRODUCTS "${libjpeg_file}")
  # the decoder alone; its own names have no prefix that would hide it with MSVC
  set(webp_parts)
  foreach(part ANIM_UTILS CWEBP DWEBP GIF2WEBP IMG2WEBP VWEBP WEBPINFO LIBWEBPMUX WEBPMUX EXTRAS)
    list(APPEND webp_parts -DWEBP_BUILD_${part}=OFF)
  endforeach()
  ExternalProject_Add(libwebp SOURCE_DIR "${LIBWEBP_DIR}" DOWNLOAD_COMMAND ""
    CMAKE_ARGS ${bundled_arguments} ${webp_parts} -DBUILD_SHARED_LIBS=OFF -DWEBP_USE_THREAD=OFF
               -DCMAKE_ARCHIVE_OUTPUT_DIRECTORY=${bundled_root}/lib
    BUILD_COMMAND ${CMAKE_COMMAND} --build . --config Release --target webpdecoder
    INSTALL_COMMAND ${CMAKE_COMMAND} -E copy_directory "${LIBWEBP_DIR}/src/webp" "${bundled_root}/include/webp"
    BUILD_BYPRODUCTS "${webp_file}")
  ExternalProject_Add(highway SOURCE_DIR "${HIGHWAY_DIR}" DOWNLOAD_COMMAND ""
    CMAKE_ARGS ${bundled_arguments} -DHWY_ENABLE_TESTS=OFF -DHWY_ENABLE_EXAMPLES=OFF -DHWY_ENABLE_CONTRIB=OFF
               -DHWY_FORCE_STATIC_LIBS=ON
    BUILD_BYPRODUCTS "${hwy_file}")
endif()

file(MAKE_DIRECTORY "${bundled_root}/include")
add_library(JPEG::JPEG STATIC IMPORTED)
set_target_properties(JPEG::JPEG PROPERTIES IMPORTED_LOCATION "${libjpeg_file}"
                      INTERFACE_INCLUDE_DIRECTORIES "${bundled_root}/include")
add_library(bundled_highway STATIC IMPORTED)
set_target_properties(bundled_highway PROPERTIES IMPORTED_LOCATION "${hwy_file}")
add_library(bundled_webp STATIC IMPORTED)
set_target_properties(bundled_webp PROPERTIES IMPORTED_LOCATION "${webp_file}")
if(NOT FASTFEED_KERNEL)
  add_dependencies(JPEG::JPEG libjpeg_turbo)
  add_dependencies(bundled_highway highway)
  add_dependencies(bundled_webp libwebp)
endif()
set(HWY_INCLUDE_DIR "${bundled_root}/include")
set(HWY_LIBRARY bundled_highway)
set(WEBP_INCLUDE_DIR "${bundled_root}/include")
set(WEBP_LIBRARY bundled_webp)

# What a wheel must say of what is inside: licences and a bill of materials (PEP 770), from the sources that were built.
if(SKBUILD_METADATA_DIR)
  file(STRINGS "${LIBJPEG_DIR}/CMakeLists.txt" line REGEX "^set\\(VERSION " LIMIT_COUNT 1)
  string(REGEX MATCH "[0-9][0-9.]*" LIBJPEG_VERSION "${line}")
  install(FILES "${LIBJPEG_DIR}/LICENSE.md" "${LIBJPEG_DIR}/README.ijg"
          DESTINATION "${SKBUILD_METADATA_DIR}/licenses/libjpeg-turbo")
  file(STRINGS "${LIBWEBP_DIR}/configure.ac" line REGEX "^AC_INIT" LIMIT_COUNT 1)
  string(REGEX MATCH "[0-9][0-9.]*" LIBWEBP_VERSION "${line}")
  install(FILES "${LIBWEBP_DIR}/COPYING" "${LIBWEBP_DIR}/PATENTS"
          DESTINATION "${SKBUILD_METADATA_DIR}/licenses/libwebp")
  install(FILES "${HIGHWAY_DIR}/LICENSE" "${HIGHWAY_DIR}/LICENSE-BSD3"
          DESTINATION "${SKBUILD_METADATA_DIR}/licenses/highway")
  configure_file(${CMAKE_CURRENT_LIST_DIR}/../../packaging/sbom.cdx.json.in "${CMAKE_BINARY_DIR}/fastfeed.cdx.json" @ONLY)
  install(FILES "${CMAKE_BINARY_DIR}/fastfeed.cdx.json" DESTINATION "${SKBUILD_METADATA_DIR}/sboms")
endif()
