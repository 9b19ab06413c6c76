#!/usr/bin/env bash
# Installs what is missing, builds train and the tests of jobs on several hosts, and runs these, as root or with sudo: the
# hosts are namespaces of this machine, joined by a bridge. Flags go to the tests' program (a name picks one, -l lists them).
set -euo pipefail
cd "$(dirname "$0")/.."
extra_packages=(iproute2 nftables util-linux)
source trainers/setup.sh
build host_tests tests/host_tests 4
as_root=()
[[ $(id -u) == 0 ]] || as_root=(sudo)
if ! problem=$("${as_root[@]}" unshare --net --uts --mount mount -t sysfs sysfs /sys 2>&1); then
  echo "tests/hosts.sh needs to make network namespaces, which this user may not on this machine: $problem" >&2
  exit 2
fi
exec "${as_root[@]}" build/release/tests/host_tests "$@"
