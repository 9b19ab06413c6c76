#!/bin/bash
# Open MPI: trains on the hosts of the file hostfile.
#   1. Write your hosts into hostfile, first this one, where train is in PATH. They share homes, and ssh to them asks nothing.
#   2. bash mpirun.sh --config mlp.yaml --output runs/mlp
#   3. Ctrl-C, or TERM to it, ends it with a checkpoint; the same command goes on from there.
# On these signals mpirun kills all hosts after a second, or a quarter of one: too soon for a checkpoint. On USR1 it does not. It
# has a session of its own, which Ctrl-C does not reach.
# Where ssh comes to, PATH is another one: the other hosts are told train's whole name.
stop() {
  stopped=yes
  [[ ! $! ]] || kill -USR1 $!
}
trap stop TERM INT HUP
setsid mpirun --hostfile "${HOSTFILE-$(dirname "$0")/hostfile}" -N 1 --bind-to none "$(command -v train || echo train)" \
  "$@" --resume auto &
# A signal ends wait, too: then it waits again.
until stopped=; wait $!; status=$?; [[ ! $stopped ]]; do :; done
exit $status
