#!/usr/bin/env bash
# PyTorch 2.15.0 (PyPI, CPU), Python 3.11, numpy absent.
# Behaviour: the gradients of a LayerNorm's bias and of an Embedding's row in bfloat16, each a sum of 4,096 ones, stop at 256;
#   with two threads that of the LayerNorm at 512. So a result depends on the number of threads by a factor of two.
# A good guess: sums of bfloat16 are added in float32 and rounded once, as those of torch.sum() and of products are: 4096.
# Cause: layer_norm_backward adds rows, and embedding_dense_backward adds to its result, in the gradient's own type.
# Seen:
#   1 thread: LayerNorm 256, Embedding 256, sum 4096
#   2 threads: LayerNorm 512, Embedding 256, sum 4096
# Exit status: 0 while that is so, 1 once it is otherwise.
set -euo pipefail
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
cd "$work"
python3 -m venv venv
venv/bin/pip install -q torch==2.15.0
cat >sums.py <<'END'
import torch

for threads in (1, 2):
    torch.set_num_threads(threads)
    norm = torch.nn.LayerNorm(8).bfloat16()
    norm(torch.ones(4096, 8, dtype=torch.bfloat16)).sum().backward()
    rows = torch.nn.Embedding(1, 8).bfloat16()
    rows(torch.zeros(4096, dtype=torch.long)).sum().backward()
    total = torch.ones(4096, dtype=torch.bfloat16).sum()
    print(f"{threads} thread{'s' * (threads > 1)}: LayerNorm {norm.bias.grad[0].item():.0f}, "
          f"Embedding {rows.weight.grad[0, 0].item():.0f}, sum {total.item():.0f}")
END
venv/bin/python sums.py 2>errors | tee seen || { cat errors; exit 1; }
diff seen - <<'END'
1 thread: LayerNorm 256, Embedding 256, sum 4096
2 threads: LayerNorm 512, Embedding 256, sum 4096
END
