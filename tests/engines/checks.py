"""The table of checks."""

import dataclasses
import random
import signal
import subprocess
import typing

from training import ROOT, Training
from waiting import Failed

SHIPPED = ROOT / "configs/cluster"


@dataclasses.dataclass
class Check:
    engine: str
    name: str
    kind: str  # short, stops or ""
    function: typing.Callable


CHECKS = []


def check(engine, name, kind=""):
    """Puts a function into the table. It gets a Lab, and raises Failed."""
    def put(function):
        CHECKS.append(Check(engine, name, kind, function))
        return function
    return put


class Lab:
    """What a check has: the cluster, a folder of its own, and what it draws at random."""

    def __init__(self, cluster, folder, seed):
        self.cluster = cluster
        self.folder = folder
        self.random = random.Random(seed)
        self.started = []

    def training(self, flags, name="job"):
        folder = self.folder / name
        folder.mkdir()
        return Training(folder, flags)

    def start(self, training, *words, node=0):
        """Starts a command that trains, with its output in the training's log. It takes Ctrl-C, as in a terminal: this process
        runs in the background of a script."""
        with open(training.log, "a") as log:
            process = subprocess.Popen([*self.cluster.on(node), *map(str, words)], stdout=log, stderr=log,
                                       stdin=subprocess.DEVNULL, start_new_session=True,
                                       preexec_fn=lambda: signal.signal(signal.SIGINT, signal.SIG_DFL))
        self.started.append(process)
        training.starters.append(process)
        return process

    def end(self, process, status=0, seconds=90):
        """Waits for its end, with this status; None: any."""
        try:
            ended = process.wait(seconds)
        except subprocess.TimeoutExpired:
            raise Failed(f"it still runs after {seconds} s: {' '.join(process.args)}") from None
        if status is not None and ended != status:
            raise Failed(f"it has ended with status {ended}, not {status}: {' '.join(process.args)}")

    def tail_of_logs(self):
        logs = sorted(self.folder.rglob("log"))
        return "".join(f"  {log.parent.name}: {line}\n" for log in logs for line in log.read_text().splitlines()[-15:])
