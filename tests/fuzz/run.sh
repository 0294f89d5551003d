#!/bin/sh
# Checks of the native kernel that need clang: see README.md.
#   run.sh fuzz [SECONDS]    libFuzzer, AddressSanitizer and UndefinedBehaviorSanitizer
#   run.sh files [FOLDER]    every file of a folder, whole and through many windows, once, same build
#   run.sh tsan              the thread pool under ThreadSanitizer
#   run.sh leaks [CALLS]     decode calls, the pool and its forks under LeakSanitizer; and Valgrind where installed
# DATA: the shared test data. LIBJPEG_SOURCE: libjpeg-turbo's source; where it is given, the sanitizers see inside it.
set -eu
here=$(cd "$(dirname "$0")" && pwd)
root=$(cd "$here/../.." && pwd)
data=${DATA:-$root/../shared/data}
build=$root/build/fuzz
CXX=${CLANGXX:-clang++}
CC=${CLANG:-clang}
mkdir -p "$build/corpus" "$build/found" "$build/seeds"
command -v "$CXX" >/dev/null || { echo "needs clang (Debian: clang libclang-rt-14-dev)"; exit 2; }

kernel="header codes entropy progressive reader writer resample kernel pool"
asan="-fsanitize=address,undefined,float-cast-overflow -fno-sanitize-recover=all"

# libjpeg NAME FLAGS: sets $jpeg to what to compile and link with
libjpeg() {
  jpeg="-ljpeg"
  [ -n "${LIBJPEG_SOURCE:-}" ] || return 0
  if [ ! -f "$build/jpeg-$1/libjpeg.a" ]; then
    cmake -S "$LIBJPEG_SOURCE" -B "$build/jpeg-$1" -DCMAKE_BUILD_TYPE=None -DCMAKE_C_COMPILER="$CC" -DWITH_SIMD=0 \
      -DENABLE_SHARED=0 -DWITH_TURBOJPEG=0 -DWITH_ARITH_DEC=1 -DCMAKE_C_FLAGS="-O1 -g $2" >"$build/jpeg-$1.log"
    cmake --build "$build/jpeg-$1" --target jpeg-static >>"$build/jpeg-$1.log"
  fi
  jpeg="-I$LIBJPEG_SOURCE -I$build/jpeg-$1 $build/jpeg-$1/libjpeg.a"
}

# program NAME SOURCE FLAGS
program() {
  sources=
  for part in $kernel; do sources="$sources $root/fastfeed/native/$part.cpp"; done
  # shellcheck disable=SC2086
  "$CXX" -std=c++17 -O1 -gdwarf-4 -fno-omit-frame-pointer -DFASTFEED_NO_CLONES $3 -I"$root/fastfeed/native" \
    "$here/$2" $sources $jpeg -pthread -o "$build/$1"
}

case "${1:-}" in
fuzz)
  # libjpeg shifts negative numbers on purpose, so only AddressSanitizer and the coverage counters look into it
  libjpeg fuzz "-fsanitize=address -fsanitize=fuzzer-no-link"
  program fuzz_decode fuzz_decode.cpp "$asan -fsanitize=fuzzer"
  # eight bytes in front say what is asked for, here one of four; the fuzzer varies them by itself
  n=0
  for file in "$data"/bad-images/jpeg/* "$here"/inputs/*; do
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
  cd "$build"
  exec ./fuzz_decode corpus seeds -max_total_time="${2:-1200}" -rss_limit_mb=2500 -timeout=20 -max_len=65536 \
    -print_final_stats=1 -artifact_prefix=found/
  ;;
files)
  libjpeg fuzz "-fsanitize=address -fsanitize=fuzzer-no-link"
  program files files.cpp "$asan -fsanitize=fuzzer-no-link"
  "$build/files" "${2:-$data/bad-images}" "$here/inputs"
  ;;
tsan)
  libjpeg tsan "-fsanitize=thread"
  program pool_tsan pool.cpp "-fsanitize=thread"
  TSAN_OPTIONS=halt_on_error=1 "$build/pool_tsan"
  ;;
leaks)
  libjpeg fuzz "-fsanitize=address -fsanitize=fuzzer-no-link"
  program leaks files.cpp "$asan -fsanitize=fuzzer-no-link"
  ASAN_OPTIONS=detect_leaks=1 "$build/leaks" --calls "${2:-10000}" "$data/bad-images/jpeg" "$here/inputs"
  program pool_asan pool.cpp "$asan -fsanitize=fuzzer-no-link"
  "$build/pool_asan"
  if command -v valgrind >/dev/null; then
    jpeg=-ljpeg # the installed one, as users have it, with its SIMD code that sanitizers cannot look into
    program leaks_plain files.cpp ""
    valgrind -q --leak-check=full --errors-for-leak-kinds=definite,indirect,possible --error-exitcode=1 \
      "$build/leaks_plain" --calls "${VALGRIND_CALLS:-1000}" "$data/bad-images/jpeg" "$here/inputs"
  fi
  ;;
*)
  sed -n '2,7p' "$0"
  exit 2
  ;;
esac
