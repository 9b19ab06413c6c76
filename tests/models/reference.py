"""Runs the models of models/ and batch normalization in PyTorch; reference.json has the results.

    pip install torch && python3 tests/models/reference.py > tests/models/reference.json

They are written here by torch.nn.functional alone, in float64. Parameters and inputs are values()
of their names, which reference_test.cpp makes, too.
"""
import json
import math
import sys

import torch
import torch.nn.functional as F

MASK = 2**64 - 1


def mix(value):
    """SplitMix64's finalizer, as in framework/base/random.h."""
    value = (value + 0x9E3779B97F4A7C15) & MASK
    value = ((value ^ (value >> 30)) * 0xBF58476D1CE4E5B9) & MASK
    value = ((value ^ (value >> 27)) * 0x94D049BB133111EB) & MASK
    return value ^ (value >> 31)


def draws(name, count):
    """Key(0).fold(name).draw(0 … count - 1)"""
    state = mix(0)
    state = mix(state ^ mix(~len(name) & MASK))
    for letter in name.encode():
        state = mix(state ^ letter)
    return [mix((state + i * 0x9E3779B97F4A7C15) & MASK) for i in range(count)]


def values(name, shape, center=0.0, scale=1.0):
    """Uniform within `scale` of `center`, rounded to float32."""
    units = [(draw >> 11) * 2.0**-53 for draw in draws(name, math.prod(shape))]
    numbers = torch.tensor([center + (2 * unit - 1) * scale for unit in units], dtype=torch.float64)
    return numbers.float().double().view(shape)


def integers(name, shape, limit):
    return torch.tensor([draw % limit for draw in draws(name, math.prod(shape))]).view(shape)


def parameter(name, shape):
    """Biases around 0 and gains of normalizations around 1, weights that keep the scale of values."""
    if len(shape) > 1:
        scale = 1 / math.sqrt(math.prod(shape[1:]))
        return values(name, shape, 0.0, scale).requires_grad_()
    is_gain = name.endswith("weight")
    return values(name, shape, 1.0 if is_gain else 0.0, 0.1).requires_grad_()


class Parameters(dict):
    """Made when they are first asked for."""

    def get(self, name, *shape):
        if name not in self:
            self[name] = parameter(name, shape)
        return self[name]


def linear(p, inputs, outputs):
    return F.linear(inputs, p.get("w", outputs, inputs.shape[1]), p.get("b", outputs))


def mlp(p, x, widths, path=""):
    for i, width in enumerate(widths):
        x = F.linear(x if i == 0 else F.relu(x), p.get(f"{path}{i}.weight", width, x.shape[1]),
                     p.get(f"{path}{i}.bias", width))
    return x


def cnn(p, x, channels, dense):
    for i, out in enumerate(channels):
        x = F.conv2d(x, p.get(f"conv.{i}.weight", out, x.shape[1], 3, 3),
                     p.get(f"conv.{i}.bias", out), padding=1)
        x = F.max_pool2d(F.relu(x), 2)
    return mlp(p, x.flatten(1), dense, "dense.")


def gpt(p, tokens, layers, heads, width, context, vocabulary):
    samples, positions = tokens.shape

    def norm(x, path):
        return F.layer_norm(x, (width,), p.get(path + ".weight", width),
                            p.get(path + ".bias", width))

    def affine(x, path, out):
        return x @ p.get(path + ".weight", x.shape[-1], out) + p.get(path + ".bias", out)

    embeddings = p.get("wte.weight", vocabulary, width)
    x = F.embedding(tokens, embeddings) + p.get("wpe.weight", context, width)[:positions]
    for layer in range(layers):
        h = f"h.{layer}."
        parts = affine(norm(x, h + "ln_1"), h + "attn.c_attn", 3 * width).split(width, dim=2)
        q, k, v = (part.view(samples, positions, heads, -1).transpose(1, 2) for part in parts)
        mixed = F.scaled_dot_product_attention(q, k, v, is_causal=True)
        x = x + affine(mixed.transpose(1, 2).flatten(2), h + "attn.c_proj", width)
        inner = F.gelu(affine(norm(x, h + "ln_2"), h + "mlp.c_fc", 4 * width), approximate="tanh")
        x = x + affine(inner, h + "mlp.c_proj", width)
    return F.linear(norm(x, "ln_f"), embeddings)


class BatchNorms:
    """F.batch_norm by name, with running statistics that begin at 0 and 1."""

    def __init__(self, p):
        self.p = p
        self.buffers = {}
        self.is_training = True

    def __call__(self, x, path):
        channels = x.shape[1]
        mean = self.buffers.setdefault(path + ".running_mean", torch.zeros(channels).double())
        var = self.buffers.setdefault(path + ".running_var", torch.ones(channels).double())
        return F.batch_norm(x, mean, var, self.p.get(path + ".weight", channels),
                            self.p.get(path + ".bias", channels), training=self.is_training)


def resnet(p, norms, x, depth, width, classes):
    def conv(x, path, out, size, stride=1):
        return F.conv2d(x, p.get(path + ".weight", out, x.shape[1], size, size), stride=stride,
                        padding=size // 2)

    x = F.relu(norms(conv(x, "conv1", width, 3), "bn1"))
    for stage in range(3):
        for i in range((depth - 2) // 6):
            path = f"layer{stage + 1}.{i}."
            out = width * 2**stage
            stride = 2 if stage > 0 and i == 0 else 1
            y = F.relu(norms(conv(x, path + "conv1", out, 3, stride), path + "bn1"))
            y = norms(conv(y, path + "conv2", out, 3), path + "bn2")
            if x.shape != y.shape:
                shortcut = path + "downsample."
                x = norms(conv(x, shortcut + "0", out, 1, stride), shortcut + "1")
            x = F.relu(x + y)
    return F.linear(x.mean((2, 3)), p.get("fc.weight", classes, x.shape[1]),
                    p.get("fc.bias", classes))


def summary(tensor):
    """What tells tensors apart: shape, sum, norm and a few elements."""
    flat = tensor.detach().flatten()
    count = len(flat)
    chosen = [0, count // 3, 2 * count // 3, count - 1]
    return {"shape": list(tensor.shape), "sum": flat.sum().item(), "norm": flat.norm().item(),
            "elements": [flat[i].item() for i in chosen]}


def summaries(tensors):
    return {name: summary(tensor) for name, tensor in sorted(tensors.items())}


def outcome(name, p, outputs, loss):
    loss.backward()
    return {"name": name, "outputs": summary(outputs), "loss": loss.item(),
            "gradients": summaries({name: tensor.grad for name, tensor in p.items()})}


def model_cases():
    p = Parameters()
    outputs = linear(p, values("inputs", (7, 5)), 3)
    yield outcome("linear", p, outputs, F.mse_loss(outputs, values("targets", (7, 3))))

    p = Parameters()
    outputs = mlp(p, values("inputs", (9, 20)), (16, 12, 5))
    yield outcome("mlp", p, outputs, F.cross_entropy(outputs, integers("targets", (9,), 5)))

    for name, image in (("cnn, one channel", (1, 12, 12)), ("cnn, three channels", (3, 9, 14))):
        p = Parameters()
        outputs = cnn(p, values("inputs", (6, *image)), (4, 6), (10, 5))
        yield outcome(name, p, outputs, F.cross_entropy(outputs, integers("targets", (6,), 5)))

    for name, positions, heads in (("gpt", 12, 4), ("gpt, one head, short", 7, 1)):
        p = Parameters()
        shape = (3, positions)
        outputs = gpt(p, integers("inputs", shape, 29), 2, heads, 16, 12, 29)
        targets = integers("targets", shape, 29)
        yield outcome(name, p, outputs, F.cross_entropy(outputs.flatten(0, 1), targets.flatten()))

    for name, image in (("resnet, one channel", (1, 12, 12)),
                        ("resnet, three channels", (3, 9, 14))):
        p = Parameters()
        norms = BatchNorms(p)
        inputs = values("inputs", (6, *image))
        outputs = resnet(p, norms, inputs, 14, 4, 5)
        loss = F.cross_entropy(outputs, integers("targets", (6,), 5))
        case = outcome(name, p, outputs, loss)
        norms.is_training = False
        case["buffers"] = summaries(norms.buffers)
        case["evaluated"] = summary(resnet(p, norms, inputs, 14, 4, 5))
        yield case


def batch_norm_cases():
    """What torch.nn.SyncBatchNorm computes: BatchNorm of the whole batch.

    It refuses CPU tensors itself where there are several replicas.
    """
    for shape, kind in (((12, 5), torch.nn.BatchNorm1d), ((9, 4, 7), torch.nn.BatchNorm1d),
                        ((7, 3, 5, 6), torch.nn.BatchNorm2d)):
        for momentum in (0.1, None):
            module = kind(shape[1], momentum=momentum).double()
            with torch.no_grad():
                module.weight.copy_(parameter("weight", shape[1:2]))
                module.bias.copy_(parameter("bias", shape[1:2]))
            for step in range(2):
                inputs = values(f"inputs {step}", shape, 0.5 * step).requires_grad_()
                outputs = module(inputs)
                module.zero_grad()
                (outputs * values(f"weights {step}", shape)).sum().backward()
            yield {"shape": list(shape), "momentum": momentum, "outputs": summary(outputs),
                   "input_gradient": summary(inputs.grad),
                   "gradients": summaries({name: each.grad
                                           for name, each in module.named_parameters()}),
                   "buffers": summaries({name: each.double()
                                         for name, each in module.named_buffers()})}


if __name__ == "__main__":
    json.dump({"torch": torch.__version__, "models": list(model_cases()),
               "batch_norm": list(batch_norm_cases())}, sys.stdout, indent=1)
    print()
