"""A run of train, which an engine starts, once or again and again."""

import json
import pathlib
import re

from cluster import run
from waiting import Failed, wait_until

ROOT = pathlib.Path(__file__).resolve().parents[2]

# What is trained: an example of one step, one of a few large ones, and one that is interrupted. Over slow cables that takes
# long; without them a second or two. Bits depend on the math threads, which otherwise follow from each host's cores.
EXAMPLE = ["--config", f"{ROOT}/configs/pmean_linear.yaml"]
PERCEPTRON = ["--config", f"{ROOT}/configs/fashion_mnist_mlp.yaml", "--set", "trainer.steps=8",
              "--set", "parallel.threads_per_replica=1"]
LONG = ["--config", f"{ROOT}/configs/fashion_mnist_mlp.yaml", "--replicas", "4", "--set", "model.hidden=[32]",
        "--set", "data.batch_size=8", "--set", "trainer.steps=300", "--set", "trainer.log_every=1",
        "--set", "checkpoint.every=25", "--set", "telemetry.tensorboard=false",
        "--set", "parallel.threads_per_replica=1"]

alone = {}  # the parameters' digest of each training, from one host without an engine


class Training:
    """In a folder of its own, which also gets what the engine prints."""

    def __init__(self, folder, flags):
        self.folder = folder
        self.output = folder / "run"
        self.log = folder / "log"
        self.starters = []  # what has started it: srun and its like
        self.flags = [*flags, "--output", str(self.output)]
        if tuple(flags) not in alone:
            run("train", *flags, "--engine", "none", "--quiet", "--output", folder / "alone")
            alone[tuple(flags)] = json.loads((folder / "alone/result.json").read_text())["parameters_sha256"]
        self.digest_alone = alone[tuple(flags)]

    def said(self):
        return self.log.read_text() if self.log.exists() else ""

    def step(self):
        """The last one that is logged."""
        file = self.output / "metrics.jsonl"
        lines = file.read_text().splitlines() if file.exists() else []
        return next((json.loads(line)["step"] for line in reversed(lines) if line.endswith("}")), 0)

    def wait_for_step(self, step=20, seconds=60):
        def is_there():
            if (self.output / "result.json").exists():
                raise Failed("it has ended before it was interrupted")
            if self.starters and all(starter.poll() is not None for starter in self.starters):
                raise Failed(f"it has not come to step {step}")
            return self.step() >= step
        wait_until(f"step {step} is logged", is_there, seconds)

    def stops(self):
        """At which steps it has stopped with a checkpoint."""
        return [int(step) for step in re.findall(r"stopped after step (\d+) of \d+, with a checkpoint", self.said())]

    def resumptions(self):
        return [int(step) for step in re.findall(r"going on after step (\d+) ", self.said())]

    def checkpoints(self):
        """Their steps."""
        return sorted(int(folder.name[5:]) for folder in (self.output / "checkpoints").glob("step-*"))

    def check_stopped(self):
        """It has ended with a checkpoint of the last step."""
        if not self.stops():
            raise Failed("it has not stopped with a checkpoint")
        last, step = self.stops()[-1], self.step()
        if last != step or last not in self.checkpoints():
            raise Failed(f"it says that it has stopped after step {last}; the last one logged is {step}, its checkpoints "
                         f"are those of {self.checkpoints()}")

    def check_went_on(self):
        """It has gone on from where it had stopped."""
        if not self.stops() or self.stops()[-1] not in self.resumptions():
            raise Failed(f"it has stopped after {self.stops()}, and gone on after {self.resumptions()}")

    def check_end(self, hosts):
        """It has ended, on so many hosts, with the bits of one."""
        file = self.output / "result.json"
        if not file.exists():
            raise Failed("there is no result.json")
        result = json.loads(file.read_text())
        if result["parameters_sha256"] != self.digest_alone or result.get("hosts", 1) != hosts:
            raise Failed(f"parameters are {result['parameters_sha256']} on {result.get('hosts', 1)} hosts, "
                         f"but {self.digest_alone} are those of one host, and {hosts} should be there")
