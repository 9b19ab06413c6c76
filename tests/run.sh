#!/usr/bin/env bash
# Installs what is missing, builds everything and runs all tests; flags go to ctest (-R NAME picks some).
set -euo pipefail
cd "$(dirname "$0")/.."
source trainers/setup.sh
cmake --build --preset release
exec ctest --preset release "$@"
