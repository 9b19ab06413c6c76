#!/usr/bin/env bash
# Installs what is missing, builds what it needs and reads damaged files, COUNT of each sort (default: 10000): data files
# of all formats and configs with the address sanitizer, and as many of train's configs. LOCKSTEP_SEED draws others.
set -euo pipefail
cd "$(dirname "$0")/.."
export LOCKSTEP_FUZZ=${1-10000}
source trainers/setup.sh
build trainers_tests tests/trainers_tests 5
cmake --preset asan >/dev/null
cmake --build --preset asan --target formats_tests keys_tests
build/asan/tests/formats_tests '[fuzz]'
build/asan/tests/keys_tests '[fuzz]'
exec build/release/tests/trainers_tests '[fuzz]'
