#!/bin/sh
# Checks of the native kernel that need clang: see README.md.
#   run.sh fuzz [SECONDS]     the next three, and tsan
#   run.sh decode [SECONDS]   libFuzzer, AddressSanitizer and UndefinedBehaviorSanitizer: image files, re-encoding
#   run.sh program [SECONDS]  only programs of the executor
#   run.sh traces [SECONDS]   what else is read natively: events of Chrome traces, pages of databases, TFRecords
#   run.sh readers [SECONDS] [SEED] [--reader NAME]  trace files of every dialect, or of one, bent at random, read and
#                             analyzed; needs no clang
#   run.sh files [FOLDER]     every file of a folder, whole and through many windows, once, same build
#   run.sh tsan [SECONDS]     the thread pool and batches in flight under ThreadSanitizer
#   run.sh leaks [CALLS]      decode calls, the pool and its forks, and batches under LeakSanitizer; and Valgrind where installed
# DATA: a folder of test data; else that of FASTFEED_TEST_DATA. LIBJPEG_SOURCE: libjpeg-turbo's source; where it is given, the sanitizers see inside it; LIBWEBP_SOURCE likewise.
set -eu
here=$(cd "$(dirname "$0")" && pwd)
root=$(cd "$here/../.." && pwd)
native=$root/fastfeed/native
data=${DATA:-$("${PYTHON:-python3}" "$root/tests/helpers/real_data.py")}
build=$root/build/fuzz
CXX=${CLANGXX:-clang++}
CC=${CLANG:-clang}
mkdir -p "$build/corpus" "$build/found" "$build/seeds" "$build/program-corpus" "$build/program-seeds"
if [ "${1:-}" = readers ]; then
  shift
  PYTHONPATH=$root/tests exec "${PYTHON:-python}" "$here/fuzz_readers.py" --data "$data" "$@"
fi
command -v "$CXX" >/dev/null || { echo "needs clang (Debian: clang libclang-rt-14-dev)"; exit 2; }

asan="-fsanitize=address,undefined,float-cast-overflow -fno-sanitize-recover=all"

# libjpeg NAME FLAGS: sets $jpeg to what to compile and link with
libjpeg() {
  jpeg=-ljpeg
  jpeg_headers=
  [ -n "${LIBJPEG_SOURCE:-}" ] || return 0
  if [ ! -f "$build/jpeg-$1/libjpeg.a" ]; then
    cmake -S "$LIBJPEG_SOURCE" -B "$build/jpeg-$1" -DCMAKE_BUILD_TYPE=None -DCMAKE_C_COMPILER="$CC" -DWITH_SIMD=0 \
      -DENABLE_SHARED=0 -DWITH_TURBOJPEG=0 -DWITH_ARITH_DEC=1 -DCMAKE_C_FLAGS="-O1 -g $2" >"$build/jpeg-$1.log"
    cmake --build "$build/jpeg-$1" --target jpeg-static >>"$build/jpeg-$1.log"
  fi
  jpeg=$build/jpeg-$1/libjpeg.a
  jpeg_headers="-I$LIBJPEG_SOURCE -I$build/jpeg-$1"
}

# libwebp NAME FLAGS: sets $webp to what to link with, and $webp_flags; without libwebp WebPs are not decoded
libwebp() {
  webp= webp_flags=
  if [ -n "${LIBWEBP_SOURCE:-}" ]; then
    if [ ! -f "$build/webp-$1/libwebpdecoder.a" ]; then
      cmake -S "$LIBWEBP_SOURCE" -B "$build/webp-$1" -DCMAKE_BUILD_TYPE=None -DCMAKE_C_COMPILER="$CC" \
        -DCMAKE_C_FLAGS="-O1 -g $2" >"$build/webp-$1.log"
      cmake --build "$build/webp-$1" --target webpdecoder >>"$build/webp-$1.log"
    fi
    webp=$build/webp-$1/libwebpdecoder.a
    webp_flags="-DFASTFEED_WEBP -I$LIBWEBP_SOURCE/src"
  elif [ -f /usr/include/webp/decode.h ]; then
    webp=-lwebp
    webp_flags=-DFASTFEED_WEBP
  fi
}

# kernel FLAVOR FLAGS: sets $objects to the kernel's object files; what has not changed is not compiled again
kernel() {
  flags="-std=c++17 -O1 -gline-tables-only -gdwarf-4 -fno-omit-frame-pointer -ffp-contract=off -fno-math-errno"
  flags="$flags -DHWY_WANT_AVX3_DL -DHWY_BROKEN_EMU128=1 -DFASTFEED_EXACT_SCRATCH -I$native $webp_flags $2"
  [ "$1" != fuzz ] || flags="$flags -DFUZZING_BUILD_MODE_UNSAFE_FOR_PRODUCTION"
  [ "$(cat "$build/kernel-$1/flags" 2>/dev/null)" = "$flags" ] || rm -rf "$build/kernel-$1"
  mkdir -p "$build/kernel-$1"
  echo "$flags" >"$build/kernel-$1/flags"
  objects=
  stale=
  for source in "$native"/*/*.cpp; do
    part=${source#"$native"/}
    case "$part" in bindings/*) continue ;; esac
    object=$build/kernel-$1/${part%.cpp}.o
    mkdir -p "${object%/*}"
    objects="$objects $object"
    # shellcheck disable=SC2046
    if [ -f "$object" ] && [ -f "$object.d" ] &&
      [ -z "$(find $(sed 's/^[^:]*://; s/\\$//' "$object.d") -newer "$object" 2>&1 | head -n 1)" ]; then continue; fi
    stale="$stale $part"
  done
  # shellcheck disable=SC2086
  [ -z "$stale" ] || printf '%s\n' $stale | xargs -P "${JOBS:-$(nproc)}" -I'{}' sh -c \
    'part=$1; object=$2/${part%.cpp}.o; shift 2; "$@" -c -MD -MF "$object.d" -o "$object.new" && mv "$object.new" "$object"' \
    sh '{}' "$build/kernel-$1" "$CXX" $flags $jpeg_headers "$native/{}" || exit 1
}

# program NAME SOURCE FLAVOR FLAGS
program() {
  libwebp "$3" "-fsanitize=$([ "$3" = tsan ] && echo thread || echo address)$([ "$3" = fuzz ] && echo ,fuzzer-no-link)"
  kernel "$3" "${4% -fsanitize=fuzzer}"
  # shellcheck disable=SC2086
  "$CXX" $flags $4 $jpeg_headers "$here/$2" $objects $jpeg $webp -lhwy -pthread -o "$build/$1"
}

# What is asked for stands before each file: eight bytes for fuzz_decode, 2 + 96 for fuzz_program. The fuzzers vary them.
decode_seeds() {
  n=0
  for file in "$data"/bad-images/jpeg/* "$data"/bad-images/png/* "$data"/bad-images/webp/* "$data"/bad-images/tiff/* "$here"/inputs/*; do
    [ -f "$file" ] || continue
    n=$((n + 1))
    case "$file" in "$here"/inputs/*) cp "$file" "$build/seeds/$n"; continue ;; esac
    case $((n % 4)) in
    0) printf '\010\037\037\000\000\377\377\005' ;;
    1) printf '\000\007\011\100\200\040\040\014' ;;
    2) printf '\001\077\077\377\377\020\020\016' ;;
    3) printf '\002\017\037\040\040\200\200\010' ;;
    esac >"$build/seeds/$n"
    cat "$file" >>"$build/seeds/$n"
  done
  echo "$n seeds"
}

program_seeds() {
  n=0
  for file in "$data"/bad-images/jpeg/* "$data"/bad-images/jpeg/*; do
    [ -f "$file" ] && [ "$(wc -c <"$file")" -lt 32768 ] || continue
    n=$((n + 1))
    { printf '\000\140'; head -c 96 /dev/urandom; cat "$file"; } >"$build/program-seeds/$n"
  done
  while [ "$n" -lt 200 ]; do
    n=$((n + 1))
    { printf '\002\000'; head -c 512 /dev/urandom; } >"$build/program-seeds/$n"
  done
  for file in "$here"/program-inputs/*; do [ ! -f "$file" ] || cp "$file" "$build/program-seeds/"; done
}

# fuzz TARGET SECONDS CORPUS SEEDS
fuzz() {
  (cd "$build" && ASAN_OPTIONS=allocator_may_return_null=1:detect_leaks=1 "./$1" "$3" "$4" -max_total_time="$2" \
    -rss_limit_mb=2500 -malloc_limit_mb=4000 -timeout=20 -max_len=65536 -print_final_stats=1 -artifact_prefix=found/)
}

case "${1:-}" in
fuzz)
  "$0" decode "${2:-1200}"
  "$0" program "${2:-1200}"
  "$0" traces "${2:-1200}"
  "$0" tsan "${2:-1200}"
  ;;
decode)
  # libjpeg shifts negative numbers on purpose, so only AddressSanitizer and the coverage counters look into it
  libjpeg fuzz "-fsanitize=address -fsanitize=fuzzer-no-link"
  program fuzz_decode fuzz_decode.cpp fuzz "$asan -fsanitize=fuzzer-no-link -fsanitize=fuzzer"
  decode_seeds
  fuzz fuzz_decode "${2:-1200}" corpus seeds
  ;;
program)
  libjpeg fuzz "-fsanitize=address -fsanitize=fuzzer-no-link"
  program fuzz_program fuzz_program.cpp fuzz "$asan -fsanitize=fuzzer-no-link -fsanitize=fuzzer"
  program_seeds
  fuzz fuzz_program "${2:-1200}" program-corpus program-seeds
  ;;
traces)
  libjpeg fuzz "-fsanitize=address -fsanitize=fuzzer-no-link"
  program fuzz_traces fuzz_traces.cpp fuzz "$asan -fsanitize=fuzzer-no-link -fsanitize=fuzzer"
  mkdir -p "$build/traces-corpus" "$build/traces-seeds"
  PYTHONPATH=$root/tests "${PYTHON:-python}" "$here/fuzz_readers.py" --seeds "$build/traces-seeds"
  fuzz fuzz_traces "${2:-1200}" traces-corpus traces-seeds
  ;;
files)
  libjpeg fuzz "-fsanitize=address -fsanitize=fuzzer-no-link"
  program files files.cpp fuzz "$asan -fsanitize=fuzzer-no-link"
  "$build/files" "${2:-$data/bad-images}" "$here/inputs"
  ;;
tsan)
  # threads are the same whatever the instruction set: two are enough, and compile in half of the time
  thread="-fsanitize=thread -DHWY_DISABLED_TARGETS=(HWY_SSSE3|HWY_SSE4|HWY_AVX3|HWY_AVX3_DL)"
  libjpeg tsan "-fsanitize=thread"
  program pool_tsan pool.cpp tsan "$thread"
  TSAN_OPTIONS=halt_on_error=1 "$build/pool_tsan"
  program batches_tsan batches.cpp tsan "$thread"
  TSAN_OPTIONS=halt_on_error=1 "$build/batches_tsan" "${2:-300}"
  ;;
leaks)
  libjpeg fuzz "-fsanitize=address -fsanitize=fuzzer-no-link"
  program leaks files.cpp fuzz "$asan -fsanitize=fuzzer-no-link"
  ASAN_OPTIONS=detect_leaks=1 "$build/leaks" --calls "${2:-10000}" "$data/bad-images/jpeg" "$here/inputs"
  program pool_asan pool.cpp fuzz "$asan -fsanitize=fuzzer-no-link"
  "$build/pool_asan"
  program batches_asan batches.cpp fuzz "$asan -fsanitize=fuzzer-no-link"
  "$build/batches_asan" "${SECONDS_OF_BATCHES:-60}"
  if command -v valgrind >/dev/null; then
    jpeg=-ljpeg jpeg_headers= # the installed one, as users have it, with its SIMD code that sanitizers cannot look into
    program leaks_plain files.cpp plain ""
    valgrind -q --leak-check=full --errors-for-leak-kinds=definite,indirect,possible --error-exitcode=1 \
      "$build/leaks_plain" --calls "${VALGRIND_CALLS:-1000}" "$data/bad-images/jpeg" "$here/inputs"
  fi
  ;;
*)
  sed -n '2,12p' "$0"
  exit 2
  ;;
esac
