"""Training with PyTorch, one process a replica: the models of ../../../models, Adam, float32.

torch_training.py --version                    prints PyTorch's version
torch_training.py WAY RANK REPLICAS FOLDER     a replica, see link.py; WAY is
    plain   each replica trains for itself
    ddp     DistributedDataParallel
    zero    the same, with ZeroRedundancyOptimizer
"""

import math
import sys
import time

import torch
import torch.distributed as dist
from torch import nn

import link

IMAGES = 4096
WARM_UP = 3  # steps


class Cnn(nn.Module):
    """In the fastest of the ways that were tried: channels_last, and pooling before ReLU, which gives the same."""

    def __init__(self):
        super().__init__()
        self.convolutions = nn.ModuleList([nn.Conv2d(1, 32, 3, padding=1), nn.Conv2d(32, 64, 3, padding=1)])
        self.pool = nn.MaxPool2d(2)
        self.dense = nn.Sequential(nn.Linear(64 * 7 * 7, 128), nn.ReLU(), nn.Linear(128, 10))

    def forward(self, images):
        images = images.view(-1, 1, 28, 28)
        for convolution in self.convolutions:
            images = torch.relu(self.pool(convolution(images)))
        return self.dense(images.flatten(1))


MODELS = {
    "mlp": lambda: nn.Sequential(nn.Linear(784, 1024), nn.ReLU(), nn.Linear(1024, 1024), nn.ReLU(),
                                 nn.Linear(1024, 10)),
    "cnn": lambda: Cnn().to(memory_format=torch.channels_last),
}


class Images:
    """Images in memory, as bytes, of which a batch takes those at its indices."""

    def __init__(self):
        self.pixels = torch.randint(0, 256, (IMAGES, 784), dtype=torch.uint8)
        self.labels = torch.arange(IMAGES) % 10
        self.order = torch.empty(0, dtype=torch.int64)

    def next(self, count):
        if len(self.order) < count:
            self.order = torch.randperm(IMAGES)
        indices, self.order = self.order[:count], self.order[count:]
        return self.pixels.index_select(0, indices).float().div_(255), self.labels.index_select(0, indices)


def fastest_adam():
    """Adam's keyword arguments that make it the fastest here, on parameters like the mlp's, and their name."""
    ways = {"one by one": {"foreach": False}, "foreach": {"foreach": True}, "fused": {"fused": True}}
    parameters = [nn.Parameter(torch.zeros(size)) for size in ((1024, 784), (1024,), (1024, 1024), (1024,))]
    for parameter in parameters:
        parameter.grad = torch.ones_like(parameter)
    optimizers = {}
    for name, arguments in ways.items():
        try:
            optimizers[name] = torch.optim.Adam(parameters, lr=0.001, **arguments)
            optimizers[name].step()
        except (TypeError, RuntimeError):
            optimizers.pop(name, None)  # this version has it not, or not on the CPU
    seconds = dict.fromkeys(optimizers, math.inf)
    for _ in range(10):
        for name, optimizer in optimizers.items():
            begin = time.monotonic()
            optimizer.step()
            seconds[name] = min(seconds[name], time.monotonic() - begin)
    best = min(seconds, key=seconds.get)
    return best, ways[best]


class Training:
    PARTS = ("data", "forward", "backward", "communication", "update")

    def __init__(self, way, rank, replicas):
        self.way = way
        self.rank = rank
        self.replicas = replicas
        self.images = Images()
        self.sums = dict.fromkeys(self.PARTS, 0.0)

    def prepare(self, model, batch):
        torch.manual_seed(0)
        self.batch = batch
        self.model = MODELS[model]()
        choice = [fastest_adam() if self.rank == 0 else None]
        if self.replicas > 1:
            dist.broadcast_object_list(choice)  # all take the same
        name, arguments = choice[0]
        note = f"its fastest Adam here is {name}"
        if self.way == "zero":
            from torch.distributed.optim import ZeroRedundancyOptimizer

            self.optimizer = ZeroRedundancyOptimizer(self.model.parameters(), torch.optim.Adam,
                                                     parameters_as_bucket_view=True, lr=0.001, **arguments)
        else:
            self.optimizer = torch.optim.Adam(self.model.parameters(), lr=0.001, **arguments)
        if self.way != "plain":
            self.model = nn.parallel.DistributedDataParallel(self.model, gradient_as_bucket_view=True,
                                                             static_graph=True)
        for _ in range(WARM_UP):
            self.step()
        if not math.isfinite(self.loss.item()):
            raise RuntimeError(f"{model}: the loss is {self.loss.item()}")
        return note

    def lap(self, part):
        now = time.monotonic()
        self.sums[part] += now - self.last
        self.last = now

    def step(self):
        self.last = time.monotonic()
        inputs, targets = self.images.next(self.batch)
        self.lap("data")
        self.optimizer.zero_grad(set_to_none=True)
        self.loss = nn.functional.cross_entropy(self.model(inputs), targets)
        self.lap("forward")
        self.loss.backward()
        self.lap("backward")
        self.optimizer.step()
        self.lap("update")

    def parts(self):
        sums, self.sums = self.sums, dict.fromkeys(self.PARTS, 0.0)
        return [sums[part] for part in self.PARTS]

    def barrier(self):
        if self.replicas > 1:
            dist.barrier()

    def run(self, calls):
        for _ in range(calls):
            self.step()


def main(arguments):
    if arguments == ["--version"]:
        if not (dist.is_available() and dist.is_gloo_available()):
            sys.exit("this PyTorch has no torch.distributed with Gloo")
        print(torch.__version__.split("+")[0])
        return
    way, rank, replicas, folder = arguments[0], int(arguments[1]), int(arguments[2]), arguments[3]
    torch.set_num_threads(1)
    if replicas > 1:
        dist.init_process_group("gloo", init_method=f"file://{folder}/rendezvous", rank=rank, world_size=replicas)
    link.serve(Training(way, rank, replicas), folder, rank)
    if replicas > 1:
        dist.destroy_process_group()


if __name__ == "__main__":
    main(sys.argv[1:])
