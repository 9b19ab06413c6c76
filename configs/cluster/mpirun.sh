#!/bin/bash
# Open MPI: trains on the hosts of the file hostfile.
#   1. Write your hosts into hostfile, first the one where you are. They share your home folder, and ssh to them asks nothing.
#   2. bash mpirun.sh --config mlp.yaml --output runs/mlp
#   3. killall -q -USR1 mpirun prterun ends it with a checkpoint; the same command goes on from there. (Open MPI 5's mpirun is
#      called prterun once it runs.)
# Ctrl-C or TERM do so, too: Open MPI 4 hands them on after so many seconds (without this: 1), and after as many again it kills.
# Open MPI 5 always kills after a quarter of a second.
export OMPI_MCA_odls_base_sigkill_timeout=5
exec mpirun --hostfile "${HOSTFILE-$(dirname "$0")/hostfile}" -N 1 --bind-to none train "$@" --resume auto
