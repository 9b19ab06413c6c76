#!/usr/bin/env bash
# Installs what is missing, builds what it runs, and runs it. A room is a folder of tests/:
#   tests/run.sh [FLAG…]              all tests, by ctest, which gets the flags (-R tree picks those of a name)
#   tests/run.sh ROOM [ARGUMENT…]     a room's; its programs get the arguments: "cases by name*", "~[slow]", -l to list
#   tests/run.sh ROOM FILE [FLAG…]    a file's, as tests/run.sh tree tree_test
set -euo pipefail
cd "$(dirname "$0")/.."
extra_packages=(python3-numpy python3-matplotlib)

# refuse MESSAGE NAME…: says what there is instead.
refuse() {
  echo "tests/run.sh: $1: $(printf '%s\n' "${@:2}" | sort -u | paste -sd' ')" >&2
  exit 2
}
# has_cases PROGRAM ARGUMENT…: whether they pick any.
has_cases() {
  local listed
  listed=$("$@" -l) || true  # Catch2 2 ends with their number
  [[ $'\n'$listed =~ $'\n'[1-9][0-9]*' '(matching )?'test case' ]]
}

[[ ${1-} != *.cpp ]] || set -- "$(dirname "$1")" "$@"
if [[ $# == 0 || $1 == -* ]]; then
  source trainers/setup.sh
  build all_tests tests/train_tests 9
  exec ctest --preset release "$@"
fi

room=$(basename "$1")
shift
files=(tests/"$room"/*_test.cpp)
if [[ ! -f ${files[0]} ]]; then
  all=(tests/*/*_test.cpp)
  all=("${all[@]%/*}")
  refuse "there is no room '$room' among" "${all[@]#tests/}"
fi
programs=("${room}_tests")
[[ ${files[*]} != *_process_test.cpp* ]] || programs+=("${room}_process_tests")
if [[ ${1-} =~ ^[a-zA-Z0-9_./]+$ ]]; then
  file=$(basename "$1" .cpp)
  shift
  [[ ${files[*]} == *"/$file.cpp"* ]] || refuse "there is no file '$file' in tests/$room, which has" "${files[@]##*/}"
  programs=("${room}_tests")
  [[ $file != *_process_test ]] || programs=("${room}_process_tests")
  set -- -# "[#$file]" "$@"
fi
# Catch2 2 would run hidden cases as well, where others are left out.
[[ ${1-} != '~'* ]] || set -- "~[.]$1" "${@:2}"
[[ $room != hosts ]] || exec tests/hosts.sh "$@"

source trainers/setup.sh
found=() status=0
for program in "${programs[@]}"; do
  build "$program" "tests/$program" 9
  [[ ${1--} != -* ]] && ! has_cases "build/release/tests/$program" "$@" || found+=("$program")
done
[[ ${#found[@]} != 0 ]] || { echo "tests/run.sh: no case of $room is called $*" >&2; exit 2; }
for program in "${found[@]}"; do
  "build/release/tests/$program" "$@" || status=$?
done
exit "$status"
