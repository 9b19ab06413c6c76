"""Reads an export of a perceptron with NumPy alone and evaluates it on Fashion-MNIST.

    read_export_numpy.py model.safetensors

prints accuracy and loss on the test set, which must be those that `train eval` prints.
"""
import gzip
import json
import sys

import numpy as np

DTYPES = {"F64": "<f8", "F32": "<f4", "F16": "<f2", "I64": "<i8", "I32": "<i4", "BOOL": "?"}
IMAGES = "/usr/share/datasets/fashion-mnist/t10k-"


def read_safetensors(path):
    """The tensors of the file by name."""
    with open(path, "rb") as file:
        length = int.from_bytes(file.read(8), "little")
        header = json.loads(file.read(length))
        data = file.read()
    header.pop("__metadata__", None)
    tensors = {}
    for name, entry in header.items():
        begin, end = entry["data_offsets"]
        values = np.frombuffer(data[begin:end], DTYPES[entry["dtype"]])
        tensors[name] = values.reshape(entry["shape"])
    return tensors


def read_idx(name):
    with gzip.open(IMAGES + name) as file:
        dimensions = file.read(4)[3]
        shape = [int.from_bytes(file.read(4), "big") for _ in range(dimensions)]
        return np.frombuffer(file.read(), np.uint8).reshape(shape)


def test_set():
    images = read_idx("images-idx3-ubyte.gz").astype(np.float64)
    inputs = ((images / 255 - 0.2860) / 0.3530).astype(np.float32)
    return inputs.reshape(len(inputs), -1), read_idx("labels-idx1-ubyte.gz").astype(np.int64)


def perceptron(tensors, values):
    layers = len(tensors) // 2
    for i in range(layers):
        values = values @ tensors[f"{i}.weight"].T + tensors[f"{i}.bias"]
        if i + 1 < layers:
            values = np.maximum(values, 0)
    return values


def figures(outputs, labels):
    """Accuracy and mean cross entropy."""
    outputs = outputs.astype(np.float64)
    outputs = outputs - outputs.max(axis=1, keepdims=True)
    of_labels = outputs[np.arange(len(labels)), labels]
    losses = np.log(np.exp(outputs).sum(axis=1)) - of_labels
    return np.mean(outputs.argmax(axis=1) == labels), losses.mean()


if __name__ == "__main__":
    inputs, labels = test_set()
    print(*figures(perceptron(read_safetensors(sys.argv[1]), inputs), labels))
