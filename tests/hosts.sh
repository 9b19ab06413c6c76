#!/usr/bin/env bash
# Installs what is missing, builds train and the tests of jobs on several hosts, and runs these, as root or with sudo: the
# hosts are namespaces of this machine, joined by a bridge. Flags go to the tests' program (a name or a tag such as [fault]
# picks some, -l lists them). After --rounds N it runs them N times, each with a seed of its own, and tells at the end how
# long it took from each fault to the end of the job on all hosts.
set -euo pipefail
cd "$(dirname "$0")/.."
rounds=1
if [[ ${1-} == --rounds ]]; then
  rounds=${2?--rounds needs a number}
  shift 2
fi
extra_packages=(iproute2 nftables util-linux)
source trainers/setup.sh
build hosts_tests tests/hosts_tests 4
as_root=()
[[ $(id -u) == 0 ]] || as_root=(sudo)
if ! problem=$("${as_root[@]}" unshare --net --uts --mount mount -t sysfs sysfs /sys 2>&1); then
  echo "tests/hosts.sh needs to make network namespaces, which this user may not on this machine: $problem" >&2
  exit 2
fi
[[ $rounds != 1 ]] || exec "${as_root[@]}" build/release/tests/hosts_tests "$@"

log=$(mktemp)
trap 'rm -f "$log"' EXIT
for ((round = 1; round <= rounds; ++round)); do
  echo "== round $round of $rounds"
  "${as_root[@]}" env LOCKSTEP_SEED="$round" build/release/tests/hosts_tests "$@" | tee -a "$log"
done
echo "From fault to end, in seconds: fault, median, most"
sed -n 's/^from fault to end: \(.*\): \([0-9.e-]*\) s$/\1\t\2/p' "$log" | sort -t$'\t' -k1,1 -k2,2g |
  awk -F'\t' 'function tell() { if (n) printf "  %s\t%.2f\t%.2f\n", name, all[int((n + 1) / 2)], all[n] }
    $1 != name { tell(); name = $1; n = 0 } { all[++n] = $2 } END { tell() }'
echo "$rounds rounds passed"
