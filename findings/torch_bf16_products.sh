#!/usr/bin/env bash
# PyTorch 1.13.1 (PyPI, CPU; Debian bookworm's has the same), Python 3.11, on a CPU with AVX-512.
# Behaviour: a bfloat16 product of at most 4,096 multiplications is added up in bfloat16, unless the left matrix lies by rows
#   and the right one by columns; one of 4,097 is right. So the gradient of a small Linear stops growing at a batch of 256.
# A good guess: a product's error does not depend on its size or on how a matrix lies.
# Cause: up to 16 * 16 * 16 multiplications do not go to oneDNN, and three of the four loops written for them add in the type.
# Seen:
#   4096 by rows: 256
#   4096 by columns: 4096
#   4097 by rows: 4096
#   gradient of Linear(8, 1), batch 512: 256
# Exit status: 0 while that is so, 1 once it is otherwise.
set -euo pipefail
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
cd "$work"
python3 -m venv venv
venv/bin/pip install -q torch==1.13.1
cat >products.py <<'END'
import torch


def ones(*sizes):
    return torch.ones(*sizes, dtype=torch.bfloat16)


print("4096 by rows:", round((ones(1, 4096) @ ones(4096, 1)).item()))
print("4096 by columns:", round((ones(1, 4096) @ ones(1, 4096).t()).item()))
print("4097 by rows:", round((ones(1, 4097) @ ones(4097, 1)).item()))
linear = torch.nn.Linear(8, 1).bfloat16()
linear(ones(512, 8)).sum().backward()
print("gradient of Linear(8, 1), batch 512:", round(linear.weight.grad[0, 0].item()))
END
venv/bin/python products.py 2>errors | tee seen || { cat errors; exit 1; }
diff seen - <<'END'
4096 by rows: 256
4096 by columns: 4096
4097 by rows: 4096
gradient of Linear(8, 1), batch 512: 256
END
