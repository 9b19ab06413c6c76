"""Training with PyTorch, one process a replica: the models of ../../../models, Adam, float32.

See link.main(); a system's name is
    plain   each replica trains for itself
    ddp     DistributedDataParallel
    zero    the same, with ZeroRedundancyOptimizer
    fsdp    FSDP2, which is fully_shard(), of each block of the model and of the whole
"""

import math
import time

import torch
import torch.distributed as dist
import torch.nn.functional as F
from torch import nn

import link

CLASSES = 10
CONTEXT = 128
VOCABULARY = 256
SAMPLES = 4096
WARM_UP = 3  # steps


def channels_last(images):
    """The format in which convolutions and what follows them are the fastest here."""
    return images.contiguous(memory_format=torch.channels_last)


class Cnn(nn.Module):
    """Pooling before ReLU gives the same, and is faster."""

    def __init__(self):
        super().__init__()
        self.convolutions = nn.ModuleList([nn.Conv2d(1, 32, 3, padding=1), nn.Conv2d(32, 64, 3, padding=1)])
        self.pool = nn.MaxPool2d(2)
        self.dense = nn.Sequential(nn.Linear(64 * 7 * 7, 128), nn.ReLU(), nn.Linear(128, CLASSES))
        self.blocks = [*self.convolutions, self.dense]

    def forward(self, images):
        for convolution in self.convolutions:
            images = torch.relu(self.pool(channels_last(convolution(images))))
        return self.dense(images.flatten(1))


class Residual(nn.Module):
    def __init__(self, channels, out, stride):
        super().__init__()
        self.conv1 = nn.Conv2d(channels, out, 3, stride, padding=1, bias=False)
        self.bn1 = nn.BatchNorm2d(out)
        self.conv2 = nn.Conv2d(out, out, 3, padding=1, bias=False)
        self.bn2 = nn.BatchNorm2d(out)
        self.downsample = None
        if channels != out or stride != 1:
            self.downsample = nn.Sequential(nn.Conv2d(channels, out, 1, stride, bias=False), nn.BatchNorm2d(out))

    def forward(self, images):
        branch = self.bn2(self.conv2(F.relu(self.bn1(self.conv1(images)), inplace=True)))
        shortcut = images if self.downsample is None else self.downsample(images)
        return F.relu(branch + shortcut, inplace=True)


class Resnet(nn.Module):
    """Depth 8, width 16."""

    def __init__(self):
        super().__init__()
        self.conv1 = nn.Conv2d(1, 16, 3, padding=1, bias=False)
        self.bn1 = nn.BatchNorm2d(16)
        self.layers = nn.Sequential(Residual(16, 16, 1), Residual(16, 32, 2), Residual(32, 64, 2))
        self.fc = nn.Linear(64, CLASSES)
        self.blocks = list(self.layers)

    def forward(self, images):
        images = F.relu(self.bn1(channels_last(self.conv1(images))), inplace=True)
        return self.fc(self.layers(images).mean((2, 3)))


class Layer(nn.Module):
    def __init__(self, width, heads):
        super().__init__()
        self.heads = heads
        self.ln_1 = nn.LayerNorm(width)
        self.c_attn = nn.Linear(width, 3 * width)
        self.c_proj = nn.Linear(width, width)
        self.ln_2 = nn.LayerNorm(width)
        self.mlp = nn.Sequential(nn.Linear(width, 4 * width), nn.GELU(approximate="tanh"),
                                 nn.Linear(4 * width, width))

    def attend(self, values):
        samples, positions, width = values.shape
        parts = self.c_attn(values).view(samples, positions, 3, self.heads, -1).permute(2, 0, 3, 1, 4)
        q, k, v = parts.unbind()
        if hasattr(F, "scaled_dot_product_attention"):
            mixed = F.scaled_dot_product_attention(q, k, v, is_causal=True)
        else:
            mask = torch.full((positions, positions), -math.inf).triu(1)
            q, k, v = (part.flatten(0, 1) for part in (q, k, v))
            scores = torch.baddbmm(mask, q, k.transpose(1, 2), alpha=1 / math.sqrt(q.shape[2]))
            mixed = torch.bmm(scores.softmax(-1), v).view(samples, self.heads, positions, -1)
        return self.c_proj(mixed.transpose(1, 2).reshape(samples, positions, width))

    def forward(self, values):
        values = values + self.attend(self.ln_1(values))
        return values + self.mlp(self.ln_2(values))


class Gpt(nn.Module):
    """4 layers, 4 heads, width 128; the head is the token embedding."""

    def __init__(self, width=128):
        super().__init__()
        self.wte = nn.Embedding(VOCABULARY, width)
        self.wpe = nn.Embedding(CONTEXT, width)
        self.layers = nn.Sequential(*[Layer(width, heads=4) for _ in range(4)])
        self.ln_f = nn.LayerNorm(width)
        nn.init.normal_(self.wte.weight, std=0.02)
        nn.init.normal_(self.wpe.weight, std=0.02)
        self.blocks = list(self.layers)

    def forward(self, tokens):
        values = self.layers(self.wte(tokens) + self.wpe(torch.arange(tokens.shape[1])))
        return F.linear(self.ln_f(values), self.wte.weight)


class Mlp(nn.Sequential):
    def __init__(self):
        super().__init__(nn.Flatten(), nn.Linear(784, 1024), nn.ReLU(), nn.Linear(1024, 1024), nn.ReLU(),
                         nn.Linear(1024, CLASSES))
        self.blocks = [module for module in self if isinstance(module, nn.Linear)]


MODELS = {"mlp": Mlp, "cnn": Cnn, "resnet": Resnet, "gpt": Gpt}


class Samples:
    """Images as bytes, or tokens, in memory: a batch takes those at its indices, as Lockstep's sets do."""

    def __init__(self, model):
        self.is_text = model == "gpt"
        shape, dtype = ((CONTEXT + 1,), torch.int64) if self.is_text else ((1, 28, 28), torch.uint8)
        self.values = torch.randint(0, 256, (SAMPLES, *shape), dtype=dtype)
        self.labels = torch.arange(SAMPLES) % CLASSES
        self.order = torch.empty(0, dtype=torch.int64)

    def next(self, count):
        if len(self.order) < count:
            self.order = torch.randperm(SAMPLES)
        indices, self.order = self.order[:count], self.order[count:]
        chosen = self.values.index_select(0, indices)
        if self.is_text:
            return chosen[:, :-1].contiguous(), chosen[:, 1:].flatten()
        return chosen.float().div_(255), self.labels.index_select(0, indices)


def shard(model):
    """FSDP's usual use: each block is gathered for its forward and its backward, the rest for the whole step."""
    from torch.distributed.device_mesh import init_device_mesh
    from torch.distributed.fsdp import fully_shard

    mesh = init_device_mesh("cpu", (dist.get_world_size(),))
    for block in model.blocks:
        fully_shard(block, mesh=mesh)
    fully_shard(model, mesh=mesh)


def fastest_adam(parameters):
    """Adam's keyword arguments that make it the fastest here, on copies of these parameters, and their name."""
    ways = {"one by one": {"foreach": False}, "foreach": {"foreach": True}, "fused": {"fused": True}}
    copies = [nn.Parameter(parameter.detach().clone()) for parameter in parameters]
    for parameter in copies:
        parameter.grad = torch.zeros_like(parameter)
    optimizers = {}
    for name, arguments in ways.items():
        try:
            optimizers[name] = torch.optim.Adam(copies, lr=0.001, **arguments)
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

    def __init__(self, way):
        self.way = way
        self.sums = dict.fromkeys(self.PARTS, 0.0)

    def prepare(self, model, batch):
        torch.manual_seed(0)
        self.batch = batch
        self.samples = Samples(model)
        self.model = MODELS[model]()
        if self.way == "fsdp":
            shard(self.model)
        else:
            self.model.to(memory_format=torch.channels_last)  # which FSDP refuses for parameters
        choice = [fastest_adam(self.model.parameters())]
        dist.broadcast_object_list(choice)  # all take the same
        name, arguments = choice[0]
        note = f"its fastest Adam here is {name}"
        if self.way == "zero":
            from torch.distributed.optim import ZeroRedundancyOptimizer

            self.optimizer = ZeroRedundancyOptimizer(self.model.parameters(), torch.optim.Adam,
                                                     parameters_as_bucket_view=True, lr=0.001, **arguments)
        else:
            self.optimizer = torch.optim.Adam(self.model.parameters(), lr=0.001, **arguments)
        if self.way in ("ddp", "zero"):
            self.model = nn.parallel.DistributedDataParallel(self.model, gradient_as_bucket_view=True,
                                                             static_graph=True)
        for _ in range(WARM_UP):
            self.call()
        if not math.isfinite(self.loss.item()):
            raise RuntimeError(f"{model}: the loss is {self.loss.item()}")
        return note

    def lap(self, part):
        now = time.monotonic()
        self.sums[part] += now - self.last
        self.last = now

    def call(self):
        self.last = time.monotonic()
        inputs, targets = self.samples.next(self.batch)
        self.lap("data")
        self.optimizer.zero_grad(set_to_none=True)
        self.loss = F.cross_entropy(self.model(inputs).flatten(0, -2), targets)
        self.lap("forward")
        self.loss.backward()
        self.lap("backward")
        self.optimizer.step()
        self.lap("update")

    def parts(self):
        sums, self.sums = self.sums, dict.fromkeys(self.PARTS, 0.0)
        return [sums[part] for part in self.PARTS]

    def barrier(self):
        dist.barrier()


def version(way=""):
    if way == "fsdp":
        from torch.distributed.fsdp import fully_shard  # noqa: F401: the error says that there is none
    return link.torch_version()


if __name__ == "__main__":
    link.torch_main(lambda way, rank, replicas: Training(way), version)
