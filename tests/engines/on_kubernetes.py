"""Checks of the manifests in configs/cluster: their containers run as in pods, without Kubernetes. In a pod train is process
1, has nothing but what the manifest and the engine set, sees a Secret as a volume has it, and finds names only after a while."""

import os
import signal
import time

import yaml
from checks import SHIPPED, check
from training import LONG

SET_BY_TRAINER = {"PET_NNODES": "2", "PET_MASTER_ADDR": "train-node-0-0.train", "PET_MASTER_PORT": "29500",
                  "PET_NPROC_PER_NODE": "1"}


class Pods:
    """The two pods of a manifest, on a node each. LONG is what mlp.yaml says there."""

    def __init__(self, lab, training, manifest, name, by_engine):
        self.lab = lab
        self.training = training
        self.name = name  # of a pod, with {} for its index
        self.by_engine = by_engine  # the variables of a pod, by its index
        text = (SHIPPED / manifest).read_text()
        for inside, outside in (("/shared/mlp.yaml", LONG[1]), ("/shared/mlp", str(training.output)),
                                ("/etc/lockstep", str(training.folder / "secret"))):
            assert inside in text, f"{manifest} says nothing of {inside}"
            text = text.replace(inside, outside)
        self.container = self._container(list(yaml.safe_load_all(text)))
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
        pods, tables = [], []
        for index in (0, 1):
            table = self.training.folder / f"hosts-{index}"
            table.write_text("127.0.0.1 localhost\n" + lines[index])
            tables.append(table)
            own = {each["name"]: str(each["value"]) for each in self.container.get("env", [])}
            variables = {"HOME": "/root", "PATH": os.environ["PATH"], "KUBERNETES_SERVICE_HOST": "10.96.0.1",
                         "HOSTNAME": names[index].partition(".")[0], **own, **self.by_engine(index)}
            pods.append(self.lab.start(
                self.training, "unshare", "--pid", "--fork", "--kill-child", "--mount-proc", "--uts", "--mount", "bash", "-ec",
                f"mount --bind {table} /etc/hosts; hostname {variables['HOSTNAME']}; exec env -i \"$@\"", "bash",
                *[f"{name}={value}" for name, value in variables.items()], *self.container["command"],
                *self.container.get("args", []), *LONG[2:], node=index))
        time.sleep(2)
        for index, table in enumerate(tables):
            with open(table, "a") as out:
                out.write(lines[1 - index])
        return pods

    def delete(self, pods):
        """As kubectl does: TERM to process 1 of each pod."""
        for pod in pods:
            with open(f"/proc/{pod.pid}/task/{pod.pid}/children") as children:
                os.kill(int(children.read()), signal.SIGTERM)


def check_manifest(lab, manifest, name, by_engine):
    training = lab.training(LONG)
    pods = Pods(lab, training, manifest, name, by_engine)
    with lab.cluster.slow_cables():
        started = pods.start()
        training.wait_for_step()
        pods.delete(started)
        for pod in started:
            lab.end(pod, status=143)
        training.check_stopped()
    for pod in pods.start():
        lab.end(pod)
    training.check_went_on()
    training.check_end(hosts=2)


@check("kubernetes", "the pods of an Indexed Job: TERM leaves a checkpoint, and they go on")
def indexed_job(lab):
    check_manifest(lab, "indexed-job.yaml", "train-{}.train.default.svc.cluster.local",
                   lambda index: {"JOB_COMPLETION_INDEX": str(index)})


@check("kubernetes", "the pods of a JobSet: TERM leaves a checkpoint, and they go on")
def job_set(lab):
    check_manifest(lab, "jobset.yaml", "train-hosts-0-{}.train.default.svc.cluster.local",
                   lambda index: {"JOB_COMPLETION_INDEX": str(index)})


@check("kubernetes", "the pods of a TrainJob: TERM leaves a checkpoint, and they go on")
def train_job(lab):
    check_manifest(lab, "trainjob.yaml", "train-node-0-{}.train",
                   lambda index: {**SET_BY_TRAINER, "PET_NODE_RANK": str(index), "JOB_COMPLETION_INDEX": str(index)})
