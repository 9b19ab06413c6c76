"""A cluster on this machine: nodes that are namespaces with a network between them, and Slurm's daemons on them."""

import contextlib
import os
import pathlib
import re
import secrets
import signal
import subprocess
import sys

from waiting import Failed, wait_until

NODES = 4
OF_SLURM = 2  # the first of them, also of mpirun's hostfile

# No systemd, no control groups, no accounting. What a version does not know, or has as its default, is left out.
SLURM_CONF = """\
ClusterName=lockstep
SlurmctldHost=node0
SlurmUser=root
AuthType=auth/munge
AuthInfo=socket={folder}/munge.socket
SlurmctldPidFile={folder}/slurmctld.pid
SlurmctldLogFile={folder}/slurmctld.log
StateSaveLocation={folder}/state
SlurmdPidFile={folder}/slurmd-%n.pid
SlurmdLogFile={folder}/slurmd-%n.log
SlurmdSpoolDir={folder}/spool-%n
SlurmdParameters=config_overrides
ProctrackType=proctrack/linuxproc
SelectType=select/cons_tres
SelectTypeParameters=CR_CPU
PreemptType=preempt/partition_prio
PreemptMode=REQUEUE
ReturnToService=2
KillWait=10
MailProg=/bin/true
NodeName=node[0-{last}] CPUs=4 RealMemory=2000
PartitionName=main Nodes=ALL Default=YES MaxTime=INFINITE PriorityTier=1 GraceTime=20
PartitionName=urgent Nodes=ALL MaxTime=INFINITE PriorityTier=2 PreemptMode=OFF
"""

# As ssh: a command on another node, in the shell of a login there, whose PATH is the system's. mpirun starts its daemons by it.
SSH = """\
#!/bin/bash
while [[ $1 == -* ]]; do shift; done
node=$1
shift
exec nsenter --target "$(cat "{folder}/$node.pid")" --net --uts --mount --root --wd="$HOME" \\
  env -i HOME="$HOME" PATH=/usr/local/bin:/usr/bin:/bin TMPDIR="$TMPDIR" bash -c "$*"
"""


def run(*words, **options):
    """What a command prints; one that fails is an error with what it has said."""
    ended = subprocess.run([str(word) for word in words], capture_output=True, text=True, **options)
    if ended.returncode != 0:
        raise Failed(f"{' '.join(map(str, words))}: status {ended.returncode}: {ended.stdout}{ended.stderr}")
    return ended.stdout


def is_running(pid):
    try:
        return pathlib.Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] not in "ZX"
    except FileNotFoundError:
        return False


class Cluster:
    """This process is on node0, from where users start what they start. All nodes share the file system."""

    def __init__(self, folder, train):
        self.folder = folder
        self.slurm = {}  # its daemons, by node; the controller's by name
        for each in ("bin", "home", "tmp", "state"):
            (folder / each).mkdir()
        (folder / "bin/train").symlink_to(train)
        self._script("ssh", SSH.format(folder=folder))
        here = pathlib.Path(__file__).parent
        self._script("torchrun", f"#!/bin/bash\nexec {sys.executable} {here}/torchrun.py \"$@\"\n")
        # Nor what makes this user's numbers others than those of a login on another node.
        others = ("SLURM_", "LOCKSTEP_", "OMPI_", "PMIX_", "OPENBLAS_", "OMP_")
        for name in [name for name in os.environ if name.startswith(others)]:
            del os.environ[name]
        os.environ.update(
            HOME=str(folder / "home"), TMPDIR=str(folder / "tmp"), SLURM_CONF=str(folder / "slurm.conf"),
            PATH=f"{folder}/bin:/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin",
            OMPI_ALLOW_RUN_AS_ROOT="1", OMPI_ALLOW_RUN_AS_ROOT_CONFIRM="1", HOSTFILE=str(folder / "hostfile"))
        os.environ.pop("XDG_CONFIG_HOME", None)
        self._connect()

    def _script(self, name, text):
        file = self.folder / "bin" / name  # an absolute name stays
        file.write_text(text)
        file.chmod(0o755)

    def _connect(self):
        """node0 is a switch, too, to which the others are plugged."""
        hosts = self.folder / "hosts"
        hosts.write_text("127.0.0.1 localhost\n" + "".join(f"10.77.0.{k + 1} node{k}\n" for k in range(NODES)))
        (self.folder / "hostfile").write_text("".join(f"node{k} slots=1\n" for k in range(OF_SLURM)))
        set_up = "mount --bind {hosts} /etc/hosts; mount -t tmpfs tmpfs /dev/shm; hostname node{k}; ip link set lo up"
        run("bash", "-ec", set_up.format(hosts=hosts, k=0))
        run("bash", "-ec", "ip link add eth0 type bridge; ip address add 10.77.0.1/24 dev eth0; ip link set eth0 up")
        (self.folder / "node0.pid").write_text(str(os.getpid()))
        self.keepers = []
        for k in range(1, NODES):
            keeper = subprocess.Popen(["unshare", "--net", "--uts", "--mount", "sleep", "infinity"])
            self.keepers.append(keeper)
            own = os.readlink("/proc/self/ns/net")
            wait_until("a node has its network", lambda: os.readlink(f"/proc/{keeper.pid}/ns/net") != own
                       and pathlib.Path(f"/proc/{keeper.pid}/comm").read_text() == "sleep\n")
            (self.folder / f"node{k}.pid").write_text(str(keeper.pid))
            run("bash", "-ec", f"ip link add port{k} type veth peer name eth0 netns {keeper.pid}; "
                f"ip link set port{k} master eth0 up")
            run(*self.on(k), "bash", "-ec", set_up.format(hosts=hosts, k=k) +
                f"; ip address add 10.77.0.{k + 1}/24 dev eth0; ip link set eth0 up")

    def on(self, node):
        """What stands before a command that runs on a node."""
        if node == 0:
            return []
        return ["nsenter", f"--target={self.keepers[node - 1].pid}", "--net", "--uts", "--mount", "--root",
                f"--wd={os.getcwd()}"]

    @contextlib.contextmanager
    def slow_cables(self, rate="16mbit"):
        """Trainings on several nodes take their time, without work for the cores."""
        ends = [end for k in range(1, NODES) for end in ((0, f"port{k}"), (k, "eth0"))]
        for node, device in ends:
            run(*self.on(node), "tc", "qdisc", "add", "dev", device, "root", "tbf", "rate", rate, "burst", "32kb",
                "latency", "50ms")
        try:
            yield
        finally:
            for node, device in ends:
                run(*self.on(node), "tc", "qdisc", "del", "dev", device, "root")

    @contextlib.contextmanager
    def slow_disk(self, seconds):
        """Trainings that start meanwhile wait so long whenever they wait for the disk."""
        slow = self.folder / f"slow-{seconds}"
        slow.mkdir(exist_ok=True)
        self._script(slow / "train", f"#!/bin/bash\nexec strace -D -f --seccomp-bpf -qqq -o /dev/null -e trace=fsync "
                     f"-e inject=fsync:delay_enter={seconds}s {self.folder}/bin/train \"$@\"\n")
        path = os.environ["PATH"]
        os.environ["PATH"] = f"{slow}:{path}"
        try:
            yield
        finally:
            os.environ["PATH"] = path

    def processes(self, node=None, name=None):
        """Those on a node, or of a name."""
        network = None if node is None else os.readlink(f"/proc/{self.keepers[node - 1].pid}/ns/net")
        found = []
        for entry in pathlib.Path("/proc").glob("[0-9]*"):
            with contextlib.suppress(FileNotFoundError, ProcessLookupError):
                is_there = network is None or os.readlink(entry / "ns/net") == network
                is_called = name is None or (entry / "comm").read_text() == name + "\n"
                if is_there and is_called and is_running(int(entry.name)):
                    found.append(int(entry.name))
        return [pid for pid in found if pid not in [keeper.pid for keeper in self.keepers]]

    def crash(self, node):
        """All that runs on a node, as when its power fails."""
        for pid in self.processes(node):
            with contextlib.suppress(ProcessLookupError):
                os.kill(pid, signal.SIGKILL)
        self.slurm.pop(f"node{node}", None)

    def _daemon(self, name, *words):
        log = open(self.folder / f"{name}.out", "w")
        return subprocess.Popen([str(word) for word in words], stdout=log, stderr=log, start_new_session=True)

    def start_slurm(self):
        """All of it, or what is missing: nodes that had crashed come back."""
        if not self.slurm:
            self._start_controller()
        for node in range(OF_SLURM):
            if f"node{node}" not in self.slurm:
                self.slurm[f"node{node}"] = self._daemon(f"slurmd-{node}", *self.on(node), "slurmd", "-D")
                subprocess.run(["scontrol", "update", f"NodeName=node{node}", "State=RESUME"], capture_output=True)
        self._wait_for_nodes()

    def _start_controller(self):
        key = self.folder / "munge.key"
        key.write_bytes(secrets.token_bytes(128))
        key.chmod(0o400)
        (self.folder / "slurm.conf").write_text(SLURM_CONF.format(folder=self.folder, last=OF_SLURM - 1))
        major, minor = map(int, re.search(r"(\d+)\.(\d+)", run("slurmd", "-V")).groups())
        if (major, minor) >= (23, 11):  # those before look for control groups only where a plugin needs them
            (self.folder / "cgroup.conf").write_text("CgroupPlugin=disabled\n")
        socket = self.folder / "munge.socket"
        self.slurm["munged"] = self._daemon(
            "munged", "munged", "--foreground", "--force", f"--socket={socket}", f"--key-file={key}",
            f"--pid-file={self.folder}/munged.pid", f"--seed-file={self.folder}/munged.seed", "--num-threads=2")
        wait_until("munged answers", socket.exists, 20)
        self.slurm["slurmctld"] = self._daemon("slurmctld", "slurmctld", "-D", "-c")

    def _wait_for_nodes(self):
        def all_idle():
            for name, daemon in self.slurm.items():
                if daemon.poll() is not None:
                    raise Failed(f"Slurm's daemon {name} has ended:\n" + self.tail_of_daemons())
            states = subprocess.run(["sinfo", "-h", "-N", "-p", "main", "-o", "%T"], capture_output=True, text=True).stdout
            return states.split() == ["idle"] * OF_SLURM
        wait_until("all nodes are idle", all_idle, 60)

    def tail_of_daemons(self):
        logs = [*self.folder.glob("slurm*.log"), *self.folder.glob("*.out")]
        return "".join(f"{log.name}: {line}\n" for log in logs for line in log.read_text().splitlines()[-3:])
