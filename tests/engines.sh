#!/usr/bin/env bash
# Trains under the real engines: a cluster of Slurm, Open MPI and torchrun on this machine, whose nodes are namespaces. Each
# check compares the end with that of train alone, bit by bit: also after a stop, a requeue, a time limit, a lost node. It
# installs what is missing, builds train, prints a line a check, and last how many passed. As root or with sudo.
#   tests/engines.sh [--times N] [--train PROGRAM] [-l] [WORD…]
# A WORD picks checks: short (what the gate runs), slurm, mpi, torchrun, kubernetes, or words of a check's name; -l lists them.
#   tests/engines.sh stops          stops trainings 100 times, at random moments (LOCKSTEP_SEED draws the same ones again)
#   tests/engines.sh manifests      checks those in configs/cluster against the schemas of Kubernetes and JobSet, from PyPI
set -euo pipefail
cd "$(dirname "$0")/.."
[[ ${1-} != manifests ]] || exec python3 -B tests/engines/manifests.py
arguments=("$@") program=
while [[ $# -gt 0 ]]; do
  [[ $1 != --train ]] || program=${2?--train needs a program}
  shift
done

extra_packages=(slurmctld slurmd slurm-client munge openmpi-bin iproute2 util-linux strace python3 python3-yaml)
[[ ${arguments[*]} =~ (^| )(short|slurm|mpi|kubernetes|-l)( |$) ]] || extra_packages+=(python3-torch)
source trainers/setup.sh
[[ " ${arguments[*]} " != *" -l "* ]] || exec /usr/bin/python3 -B tests/engines/run.py "${arguments[@]}"
if [[ -z $program ]]; then
  build train trainers/train 3
  arguments+=(--train build/release/trainers/train)
fi
[[ $(id -u) == 0 ]] || exec sudo env CMAKE_PREFIX_PATH="${CMAKE_PREFIX_PATH-}" LOCKSTEP_SEED="${LOCKSTEP_SEED-}" \
  tests/engines.sh "${arguments[@]}"
namespaces=(unshare --pid --fork --kill-child --mount --mount-proc --net --uts --ipc)
if ! problem=$("${namespaces[@]}" true 2>&1); then
  echo "tests/engines.sh needs to make namespaces, which this user may not on this machine: $problem" >&2
  exit 2
fi

# All of it runs in namespaces, of processes as well: whatever ends their first process ends everything that was started there.
folder=$(mktemp -d "${TMPDIR:-/tmp}/lockstep-engines.XXXXXX")
end() {
  local first
  first=$(cat "/proc/$leader/task/$leader/children" 2>/dev/null) || true
  [[ -z $first ]] || kill -KILL $first
  wait "$leader" || true
  rm -rf "$folder"
}
trap 'exit 130' INT
trap 'exit 143' TERM HUP
# The first process is a shell: it also waits for those whose own parents have ended.
"${namespaces[@]}" \
  bash -c '/usr/bin/python3 -B tests/engines/run.py "$@" & wait $!' bash --folder "$folder" "${arguments[@]}" &
leader=$!
trap end EXIT
status=0
wait "$leader" || status=$?
exit "$status"
