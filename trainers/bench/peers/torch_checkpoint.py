"""Checkpoints with PyTorch, one process a replica, each with its half (third, ...) of every tensor.

See link.main(); a system's name is
    dcp         torch.distributed.checkpoint: save() and load() of DTensors
    dcp_async   the same with async_save()
    torch_save  torch.save() of each replica's part to a file of its own, and torch.load()
Checkpoints are below the folder LOCKSTEP_BENCH_FOLDER of the environment.
"""

import os
import shutil
import sys
import time

import torch
import torch.distributed as dist

import link

try:
    import torch.distributed.checkpoint as dcp
    from torch.distributed.checkpoint import async_save
except ImportError:
    sys.exit(f"PyTorch {torch.__version__} has no torch.distributed.checkpoint.async_save")

WIDTH = 2048


def sizes(parameters):
    """Names and sizes of the model's tensors, as ../systems/checkpoint.cpp has them."""
    layers, rest = divmod(parameters, WIDTH * WIDTH + WIDTH)
    for layer in range(layers):
        yield f"weight{layer}", (WIDTH, WIDTH)
        yield f"bias{layer}", (WIDTH,)
    if rest > 0:
        yield "rest", (rest,)


def cost(before, work):
    """Seconds, the peak of memory in them beyond `before`, and what `work` returns."""
    link.forget_peak()
    begin = time.monotonic()
    result = work()
    return time.monotonic() - begin, max(0, link.resident_bytes("VmHWM") - before), result


class Checkpoints:
    """Saves and loads again and again. A way has load(folder) and save(folder), which may return the seconds until training
    may go on: these are all that it takes otherwise."""

    def __init__(self, rank, replicas):
        self.rank = rank
        self.replicas = replicas
        self.folder = os.environ["LOCKSTEP_BENCH_FOLDER"]
        self.saves = 0
        self.values = []

    def prepare(self, _, parameters):
        torch.manual_seed(self.rank)
        self.state = {}  # the own part of each tensor
        self.shapes = {}
        for name, shape in sizes(parameters):
            rows = [len(part) for part in torch.arange(shape[0]).tensor_split(self.replicas)][self.rank]
            for kind in ("parameters", "exp_avg", "exp_avg_sq"):
                self.state[f"{kind}.{name}"] = torch.rand((rows, *shape[1:]))
                self.shapes[f"{kind}.{name}"] = shape
        self.make()
        self.at_start = link.resident_bytes("VmRSS")
        before = [tensor.sum() for tensor in self.state.values()]
        self.call(lambda: [tensor.zero_() for tensor in self.state.values()])
        if before != [tensor.sum() for tensor in self.state.values()]:
            raise RuntimeError("what is loaded is not what was saved")
        return self.note

    note = ""

    def make(self):
        """Makes what the way needs of the state."""

    def call(self, between=lambda: None):
        self.saves += 1
        path = os.path.join(self.folder, str(self.saves))
        saved, save_memory, pause = cost(self.at_start, lambda: self.save(path))
        dist.barrier()
        between()
        loaded, load_memory, _ = cost(link.resident_bytes("VmRSS"), lambda: self.load(path))
        dist.barrier()
        if self.rank == 0:
            shutil.rmtree(path)
        self.values = [saved, saved if pause is None else pause, loaded, save_memory, load_memory]

    def parts(self):
        values, self.values = self.values, []
        return values

    def barrier(self):
        dist.barrier()


class Distributed(Checkpoints):
    def make(self):
        from torch.distributed.device_mesh import init_device_mesh
        from torch.distributed.tensor import DTensor, Shard

        mesh = init_device_mesh("cpu", (self.replicas,))
        self.shards = {}
        for name, tensor in self.state.items():
            shape = torch.Size(self.shapes[name])
            stride = (shape[1], 1) if len(shape) == 2 else (1,)
            self.shards[name] = DTensor.from_local(tensor, mesh, [Shard(0)], run_check=False, shape=shape,
                                                   stride=stride)

    def save(self, path):
        dcp.save(self.shards, storage_writer=dcp.FileSystemWriter(path, sync_files=True))

    def load(self, path):
        dcp.load(self.shards, checkpoint_id=path)


class Asynchronous(Distributed):
    def make(self):
        super().make()
        self.stager = {}
        try:
            from torch.distributed.checkpoint.staging import DefaultStager, StagingOptions

            self.stager = {"async_stager": DefaultStager(StagingOptions(False, False, False, False))}
            self.note = "it keeps its copy, too (DefaultStager)"
        except ImportError:
            self.note = "this version copies to fresh memory"

    def save(self, path):
        begin = time.monotonic()
        saving = async_save(self.shards, storage_writer=dcp.FileSystemWriter(path, sync_files=True), **self.stager)
        pause = time.monotonic() - begin
        saving.result()
        return pause


class Plain(Checkpoints):
    def save(self, path):
        os.makedirs(path, exist_ok=True)
        with open(os.path.join(path, f"{self.rank}.pt"), "wb") as file:
            torch.save(self.state, file)
            file.flush()
            os.fsync(file.fileno())
        descriptor = os.open(path, os.O_RDONLY | os.O_DIRECTORY)
        os.fsync(descriptor)
        os.close(descriptor)

    def load(self, path):
        loaded = torch.load(os.path.join(path, f"{self.rank}.pt"), mmap=True, weights_only=True)
        for name, tensor in self.state.items():
            tensor.copy_(loaded[name])


WAYS = {"dcp": Distributed, "dcp_async": Asynchronous, "torch_save": Plain}


if __name__ == "__main__":
    link.torch_main(lambda way, rank, replicas: WAYS[way](rank, replicas))
