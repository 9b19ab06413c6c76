#!/usr/bin/env bash
# Installs what is missing, builds train, bench and the tests, and runs these; flags go to ctest (-R NAME picks some).
set -euo pipefail
cd "$(dirname "$0")/.."
extra_packages=(python3-numpy)
source trainers/setup.sh
build all_tests tests/framework_tests 9
exec ctest --preset release "$@"
