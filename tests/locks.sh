#!/usr/bin/env bash
# Has clang check that what a mutex guards is used only by who holds it (framework/base/mutex.h). It reads lockstep::core,
# and of the rooms with LibTorch what has a mutex, and makes nothing of them. A file that is wrong on purpose it must refuse.
set -euo pipefail
cd "$(dirname "$0")/.."
export LC_ALL=C
# Bookworm's clang, which is 14, has no std::source_location and can't read its library's ranges.
clang=${CLANG:-clang++-16}

# check [-include HEADER] FILE…: reads the files, which are of one room, as one.
check() {
  local options=()
  [[ $1 != -include ]] || { options=("${@:1:2}"); shift 2; }
  printf '#include "%s"\n' "$@" |
    "$clang" -std=c++20 -fsyntax-only -Wthread-safety -Werror=thread-safety -I. \
      -isystem /usr/include/torch/csrc/api/include "${options[@]}" -x c++ -
}

wrong=tests/compile/unlocked.cpp
refused=$(check "$wrong" 2>&1) && { echo "$wrong: clang takes it" >&2; exit 1; }
for error in "reading variable 'guarded' requires holding mutex 'mutex'" \
             "writing variable 'guarded' requires holding mutex 'mutex' exclusively" \
             "calling function 'add' requires holding mutex 'mutex' exclusively" \
             "mutex 'mutex' is still held at the end of function"; do
  [[ $refused == *"error: $error"* ]] || { printf '%s: no "%s" in\n%s\n' "$wrong" "$error" "$refused" >&2; exit 1; }
done
[[ $(grep -c 'error: ' <<<"$refused") == 4 ]] || { printf '%s: not 4 errors in\n%s\n' "$wrong" "$refused" >&2; exit 1; }

# What clang does not know stays where LibTorch has a mutex of its own, or one thread takes a lock twice.
unknown='std::(recursive_|shared_)?(mutex|lock_guard|scoped_lock|shared_lock|condition_variable)\b'
for file in $(grep -rlE "$unknown" framework); do
  case $file in
    framework/base/mutex.h | framework/training/process_generator.* | framework/training/keyed_draws.cpp) ;;
    *) echo "$file: use framework/base/mutex.h" >&2; exit 1 ;;
  esac
done

core=" base storage keys formats reduce timeline calls engines comm comm/gloo comm/network comm/shared groups "
for folder in framework/*/ framework/comm/*/; do
  room=${folder#framework/} room=${room%/}
  if [[ $core == *" $room "* ]]; then
    # The kernels need each its CPU's flags, and have no mutex.
    find "$folder" -maxdepth 1 -name '*.cpp' ! -name 'kernels*' | sort | xargs -r -n 24 | while read -r -a files; do
      check "${files[@]}"
    done
  else
    mapfile -t files < <(grep -l '"framework/base/mutex.h"' "$folder"* | sed 's/\.h$/.cpp/' | sort -u)
    # What some of LibTorch's headers declare clang wants defined.
    [[ ${#files[@]} == 0 ]] || check -include ATen/core/ivalue.h "${files[@]}"
  fi
done
