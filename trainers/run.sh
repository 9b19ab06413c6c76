#!/usr/bin/env bash
# Installs what is missing, builds and runs train with the flags given; without any it trains
# configs/pmean_linear.yaml on 4 replicas. Paths in flags count from the project's root.
set -euo pipefail
cd "$(dirname "$0")/.."
source trainers/setup.sh
build train trainers/train 3
[[ $# -gt 0 ]] || set -- --config configs/pmean_linear.yaml --replicas 4
exec build/release/trainers/train "$@"
