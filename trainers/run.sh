#!/usr/bin/env bash
# Installs what is missing, builds and runs train with the flags given; without any it trains
# configs/pmean_linear.yaml on 4 replicas. Paths in flags count from the folder where it is called.
set -euo pipefail
caller=$PWD
cd "$(dirname "$0")/.."
root=$PWD
source trainers/setup.sh
build train trainers/train 3
cd "$caller"
[[ $# -gt 0 ]] || set -- --config "$root/configs/pmean_linear.yaml" --replicas 4
exec "$root/build/release/trainers/train" "$@"
