"""Checks of the manifests in configs/cluster: their containers run as in pods, without Kubernetes. In a pod train is process
1, has nothing but what the manifest and the engine set, sees a Secret as a volume has it, and finds names only later."""

import contextlib
import functools
import os
import re
import signal
import subprocess
import time

import yaml
from checks import SHIPPED, check
from stopping import OFTEN, cut_off, gap, stop_often, stop_once


class Pods:
    """The two pods of a manifest, on a node each. What is trained is what mlp.yaml says there."""

    def __init__(self, lab, training, manifest, name, by_engine, grace_s=None):
        self.lab = lab
        self.training = training
        self.name = name  # of a pod, with {} for its index
        self.by_engine = by_engine  # the variables of a pod, by its index
        text = (SHIPPED / manifest).read_text()
        for inside, outside in (("/config/mlp.yaml", training.flags[1]), ("/shared/mlp", str(training.output)),
                                ("/etc/lockstep", str(training.folder / "secret"))):
            assert inside in text, f"{manifest} says nothing of {inside}"
            text = text.replace(inside, outside)
        self.container = self._container(list(yaml.safe_load_all(text)))
        self.own = {each["name"]: str(each["value"]) for each in self.container["env"]}
        self.grace_s = grace_s or int(re.search(r"terminationGracePeriodSeconds: (\d+)", text)[1])
        self._make_secret()

    def _container(self, node):
        """The first thing with a command, in lists and maps."""
        if isinstance(node, dict) and "command" in node:
            return node
        below = node.values() if isinstance(node, dict) else node if isinstance(node, list) else []
        return next(filter(None, map(self._container, below)), None)

    def _make_secret(self):
        data = self.training.folder / "secret/..2026"
        data.mkdir(parents=True)
        (data / "secret").write_text("5" * 64)
        (data / "secret").chmod(0o400)
        (data.parent / "..data").symlink_to(data.name)
        (data.parent / "secret").symlink_to("..data/secret")

    def start(self):
        """Both pods, whose names are known everywhere two seconds later."""
        names = [self.name.format(index) for index in (0, 1)]
        lines = [f"10.77.0.{index + 1} {name} {name.partition('.')[0]}\n" for index, name in enumerate(names)]
        self.pods, tables = [], []
        for index in (0, 1):
            table = self.training.folder / f"hosts-{index}"
            table.write_text("127.0.0.1 localhost\n" + lines[index])
            tables.append(table)
            variables = {"HOME": "/root", "PATH": os.environ["PATH"], "KUBERNETES_SERVICE_HOST": "10.96.0.1",
                         "HOSTNAME": names[index].partition(".")[0], **self.own, **self.by_engine(index)}
            self.pods.append(self.lab.start(
                self.training, "unshare", "--pid", "--fork", "--kill-child", "--mount-proc", "--uts", "--mount", "bash", "-ec",
                f"mount --bind {table} /etc/hosts; hostname {variables['HOSTNAME']}; exec env -i \"$@\"", "bash",
                *[f"{name}={value}" for name, value in variables.items()], *self.container["command"],
                *self.container.get("args", []), *self.training.flags[2:-2], node=index))
        time.sleep(2)
        for index, table in enumerate(tables):
            with open(table, "a") as out:
                out.write(lines[1 - index])

    def stop(self):
        """As when its Job is deleted: TERM to process 1 of each pod, and KILL to those that have not ended in time."""
        first = {pod: self._first_of(pod) for pod in self.pods}
        end = time.monotonic() + self.grace_s
        for pod in self.lab.random.sample(self.pods, 2):
            with contextlib.suppress(ProcessLookupError):  # the other one has told it
                os.kill(first[pod], signal.SIGTERM)
            gap(self.lab)
        with contextlib.suppress(subprocess.TimeoutExpired):
            for pod in self.pods:
                pod.wait(max(0, end - time.monotonic()))
        late = [pod for pod in self.pods if pod.poll() is None]
        for pod in late:
            with contextlib.suppress(ProcessLookupError):
                os.kill(first[pod], signal.SIGKILL)
        for pod in self.pods:
            self.lab.end(pod, status=None if pod in late else 143)

    def _first_of(self, pod):
        with open(f"/proc/{pod.pid}/task/{pod.pid}/children") as children:
            return int(children.read())

    def end(self):
        for pod in self.pods:
            self.lab.end(pod)


INDEXED_JOB = functools.partial(
    Pods, manifest="indexed-job.yaml", name="train-{}.train.default.svc.cluster.local",
    by_engine=lambda index: {"JOB_COMPLETION_INDEX": str(index)})
JOB_SET = functools.partial(
    Pods, manifest="jobset.yaml", name="train-hosts-0-{}.train.default.svc.cluster.local",
    by_engine=lambda index: {"JOB_COMPLETION_INDEX": str(index)})


@check("kubernetes", "the pods of an Indexed Job: TERM leaves a checkpoint, and they go on")
def indexed_job(lab):
    stop_once(lab, INDEXED_JOB)


@check("kubernetes", "the pods of a JobSet: TERM leaves a checkpoint, and they go on")
def job_set(lab):
    stop_once(lab, JOB_SET)


@check("kubernetes", OFTEN % "TERMs to the pods, up to 200 ms apart", kind="stops")
def often_deleted(lab):
    stop_often(lab, INDEXED_JOB)


@check("kubernetes", "a second is too short for a save: the run goes on from the checkpoint before", kind="stops")
def cut_off_by_kubelet(lab):
    cut_off(lab, functools.partial(INDEXED_JOB, grace_s=1), disk_s=1)
