"""As read_export_numpy.py, with PyTorch and safetensors' own reader: load_state_dict takes an export.

    read_export_torch.py model.safetensors

No test runs it: it needs `pip install torch safetensors numpy`.
"""
import sys

import torch
from safetensors.torch import load_file

from read_export_numpy import figures, test_set


class Perceptron(torch.nn.Module):
    """Names its layers 0, 1, …, as Lockstep's does."""

    def __init__(self, tensors):
        super().__init__()
        for i in range(len(tensors) // 2):
            outputs, inputs = tensors[f"{i}.weight"].shape
            self.add_module(str(i), torch.nn.Linear(inputs, outputs))

    def forward(self, values):
        for i, layer in enumerate(self.children()):
            values = layer(values if i == 0 else torch.relu(values))
        return values


if __name__ == "__main__":
    tensors = load_file(sys.argv[1])
    model = Perceptron(tensors)
    model.load_state_dict(tensors)  # strictly
    inputs, labels = test_set()
    with torch.no_grad():
        outputs = model(torch.from_numpy(inputs)).numpy()
    print(*figures(outputs, labels))
