#!/usr/bin/env bash
# Trains under the real engines: a cluster of Slurm, Open MPI and torchrun on this machine, whose nodes are namespaces. Each
# check compares the end with that of train alone, bit by bit: also after a stop, a requeue, a time limit, a lost node. It
# installs what is missing, builds train, prints a line a check, and last how many passed. As root or with sudo.
#   tests/engines.sh [--times N] [--train PROGRAM] [-l] [WORD…]
# A WORD picks checks: short (what the gate runs), slurm, mpi, torchrun, kubernetes, or words of a check's name; -l lists them.
#   tests/engines.sh manifests      checks those in configs/cluster against the schemas of Kubernetes and Kubeflow, from PyPI
set -euo pipefail
cd "$(dirname "$0")/.."
[[ ${1-} != manifests ]] || exec python3 -B tests/engines/manifests.py
arguments=("$@") program=
while [[ $# -gt 0 ]]; do
  [[ $1 != --train ]] || program=${2?--train needs a program}
  shift
done

extra_packages=(slurmctld slurmd slurm-client munge openmpi-bin iproute2 util-linux python3 python3-yaml)
[[ ${arguments[*]} =~ (^| )(short|slurm|mpi|kubernetes|-l)( |$) ]] || extra_packages+=(python3-torch)
source trainers/setup.sh
[[ " ${arguments[*]} " != *" -l "* ]] || exec /usr/bin/python3 -B tests/engines/run.py "${arguments[@]}"
if [[ -z $program ]]; then
  build train trainers/train 3
  arguments+=(--train build/release/trainers/train)
fi
[[ $(id -u) == 0 ]] || exec sudo env CMAKE_PREFIX_PATH="${CMAKE_PREFIX_PATH-}" tests/engines.sh "${arguments[@]}"

# All of it runs in namespaces, of processes as well: whatever ends their first process ends everything that was started there.
folder=$(mktemp -d "${TMPDIR:-/tmp}/lockstep-engines.XXXXXX")
end() {
  local first
  first=$(cat "/proc/$namespaces/task/$namespaces/children" 2>/dev/null) || true
  [[ -z $first ]] || kill -KILL $first
  wait "$namespaces" || true
  rm -rf "$folder"
}
trap 'exit 130' INT
trap 'exit 143' TERM HUP
# The first process is a shell: it also waits for those whose own parents have ended.
unshare --pid --fork --kill-child --mount --mount-proc --net --uts --ipc \
  bash -c '/usr/bin/python3 -B tests/engines/run.py "$@" & wait $!' bash --folder "$folder" "${arguments[@]}" &
namespaces=$!
trap end EXIT
status=0
wait "$namespaces" || status=$?
exit "$status"
