#!/bin/bash
# torchrun: trains on hosts that may come and go. There are as many replicas on one host as on four, and their bits are the same.
#   1. Start it on each host; 1:4 stands for one to four of them, and node0 is the first: there torchrun's agents meet.
#   2. bash torchrun.sh 1:4 node0:29400 --config mlp.yaml --output /shared/mlp
#   3. Ctrl-C ends it with a checkpoint; the same command goes on from there.
# A host that comes may count as a restart on the others. With PyTorch 2.6 it comes in vain while agents share a store with what
# they start: it is not told where that is. train does not need it.
export TORCH_DISABLE_SHARE_RDZV_TCP_STORE=1
# Without --redirects and --tee, which here change nothing, torchrun 1.13 fails on Python 3.11, as Debian 12 has them.
exec torchrun --nnodes="$1" --nproc_per_node=1 --no_python --rdzv_backend=c10d --rdzv_endpoint="$2" --rdzv_id=train \
  --max_restarts=10 --redirects=1:1 --tee=1:1 train "${@:3}" --resume auto
