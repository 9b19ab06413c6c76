"""The systems that are measured: Lockstep's own, which the worker serves, other libraries, and the hosts that --hosts makes."""

import json
import os
import re
import socket
import subprocess
from functools import lru_cache

from crew import Program, Stopped, System, run
from flags import AUGMENTED, HERE
from texts import Failed, Refused, did_you_mean

# In a build the driver's folder is next to the worker; installed, in libexec/lockstep.
WORKER, PEERS = f"{HERE}/../bench_worker", f"{HERE}/../bench_peers"
BUILT = os.path.exists(f"{HERE}/../plot.py")
PLOT, TRAIN = (f"{HERE}/../{name}" if BUILT else f"{HERE}/../../../{folder}/{name}"
               for folder, name in (("share/lockstep", "plot.py"), ("bin", "train")))
VDOT_REPLICAS, VDOT_BYTES = 8, 10_000_000 * 3 * 4
STAGES = {f"stage{stage}": f"stage {stage}" for stage in range(4)}  # as --systems has them, as tables have them
NO_CACHES = {"PYTHONDONTWRITEBYTECODE": "1"}  # or scripts would leave __pycache__ where they are
# PyTorch's best: a process a replica that meets the others on loopback, with a thread for its math.
TORCH = {"GLOO_SOCKET_IFNAME": "lo", "OMP_NUM_THREADS": "1", **NO_CACHES}
# The scripts of peers/, and what their libraries are called. The others are torch_training.py's, of PyTorch.
SCRIPTS = {"pandas": "table.py", "loadtxt": "table.py", "c10d": "c10d.py", "jax": "jax_pmap.py", "torch.func": "torch_vmap.py",
           "dcp": "torch_checkpoint.py", "dcp_async": "torch_checkpoint.py", "torch_save": "torch_checkpoint.py"}
LIBRARIES = {"pandas": "pandas", "loadtxt": "NumPy", "jax": "JAX"}


def ask_worker(*words):
    """The worker's answer, in JSON."""
    ended = run(Program([WORKER, *map(str, words)]))
    if ended.status:
        raise Failed(f"bench_worker {words[0]}: {ended.last_line}")
    return json.loads(ended.last_line)


def own(measurement, name, way, version, mode="processes", **more):
    """A system of the worker."""
    def programs(replicas, folder):
        return [Program([WORKER, "serve", measurement, way, mode, str(replicas), folder])]
    return System(name, way + (" threads" if mode == "threads" else ""), version, True, programs, **more)


def collective_systems(options, version):
    if options.hosts > 1:
        tcp = own("collectives", "tcp", "tcp", "both directions at once")._replace(own=False, replicas=options.hosts)
        return [own("collectives", way, way, version) for way in ("symmetric", "psum")] + [tcp]
    # Replicas of a pmap are threads in any case, which no label says.
    return [own("collectives", way, way, version, mode) for way in ("symmetric", "psum", "pmap", "gloo")
            for mode in (["processes"] if way == "pmap" else options.launch)]


def vdot_systems(version):
    ways = {"pmap": "at::dot of parts in a pmap over 8 replicas, then psum", "serial": "at::dot in one thread",
            "libtorch": "at::dot on all cores"}
    return [own("vdot", way, way, f"{version}, {what}", one_controller=True)._replace(own=way == "pmap")
            for way, what in ways.items()]


def training_systems(options, version):
    ways = [f"stage {stage}" + (f" {AUGMENTED}" if data == AUGMENTED else "") for data in options.data
            for stage in options.stages]
    return [own("training", "lockstep", "alone", version),
            *(own("training", "lockstep", way, version, mode) for mode in options.launch for way in ways)]


def train_system(config, version):
    """The `train` binary with a config in YAML whose training is one step. It prints "step 1" at its end."""
    def programs(replicas, folder):
        with open(f"{folder}/config.yaml", "w") as file:
            file.write(config)
        return [Program([TRAIN, "--config", file.name, "--replicas", str(replicas), "--output", f"{folder}/run"])]
    return System("lockstep", "train", version, True, programs)


def changed(system, change):
    """The system with programs that `change` has made from its own."""
    return system._replace(programs=lambda replicas, folder: change(system.programs(replicas, folder)))


def torchrun(python, replicas):
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port = probe.getsockname()[1]
    # Redirections of a tenth replica, which there is none of: without any, torchrun 1.13 fails on Python 3.11, whose
    # enumerations have no member for 0.
    return Program([python, "-m", "torch.distributed.run", "--nproc_per_node", str(replicas), "--master_addr", "127.0.0.1",
                    "--master_port", str(port), "--monitor_interval", "0.1", "--redirects", "9:3", "--tee", "9:3",
                    f"{PEERS}/torch_startup.py"], TORCH)


def short(version):
    """2.15 of 2.15.0a0"""
    return re.match(r"\d*\.?\d*", version)[0]


@lru_cache(None)
def version_of(*words):
    """The version that a program tells of its library; Refused with the reason if it tells none. It is asked once, since several
    systems may be of one library, which may take seconds to load."""
    ended = run(Program([*words, "--version"], NO_CACHES))
    if ended.status:
        raise Refused(f"{words[0]} cannot run it: {ended.last_line}")
    return ended.last_line


def open_mpi():
    program, name = f"{PEERS}/openmpi", "Open MPI "
    if not os.path.exists(program):
        raise Refused("there was no MPI when bench was built (Debian: libopenmpi-dev)")
    version, _ = version_of(program), version_of("mpirun")
    if not version.startswith(name):
        raise Refused(f"the MPI that bench was built with is another: {version}")
    words = ["mpirun", "--allow-run-as-root", "--oversubscribe", "--mca", "btl", "self,vader", "-np"]
    return System("openmpi", f"openmpi {short(version[len(name):])}", version, False, lambda replicas, folder: [
        Program([*words, str(replicas), program, folder], {"TMPDIR": folder})])


def peer_system(name, python):
    """The system of a script in peers/; Refused where this interpreter cannot run it."""
    script, library = SCRIPTS.get(name, "torch_training.py"), LIBRARIES.get(name, "PyTorch")
    # Not every version can all, and not every interpreter has both readers of tables.
    version = version_of(python, f"{PEERS}/{script}", *[name] * (name == "fsdp" or script == "table.py"))
    is_one = name in ("jax", "torch.func")

    def programs(replicas, folder):
        if name == "torchrun":
            return [torchrun(python, replicas)]
        return [Program([python, f"{PEERS}/{script}", name, str(rank), str(replicas), folder],
                        TORCH if library == "PyTorch" else NO_CACHES) for rank in range(1 if is_one else replicas)]

    return System(name, f"{name} {short(version)}", f"{library} {version}, {python}", False, programs, is_one)


def peers(name, pythons):
    """Systems of another library, one for each interpreter that has a version of its own, and those that are left out."""
    systems, left_out = [], []
    for python in pythons if name != "openmpi" else [None]:
        try:
            found = peer_system(name, python) if python else open_mpi()
            if found.label in [system.label for system in systems]:
                raise Refused(f"{python} has {found.version.partition(',')[0]}, as another has")
            systems.append(found)
        except Refused as reason:
            left_out.append({"name": name, "reason": str(reason)})
    return systems, left_out


def find_systems(options, own_systems, names):
    """Those of --systems, first the own ones and then the peers, and those that are left out. One that --systems names must be
    there."""
    stages = {name: label for name, label in STAGES.items() if any(label in system.label for system in own_systems)}
    known = [*dict.fromkeys(system.name for system in own_systems), *stages, *names]
    wanted = [name.replace("stage ", "stage") for name in options.systems or known if options.systems or name not in stages]
    for name in wanted:
        if name not in known:
            raise Refused(f"--systems: unknown system '{name}'{did_you_mean(name, known)}; there are {', '.join(known)}")
    labels = tuple(stages[name] for name in wanted if name in stages)
    systems = [system for system in own_systems if system.name in wanted or labels and
               system.label.startswith((*labels, "alone"))]
    left_out = []
    for name in (name for name in names if name in wanted):
        found, missing = peers(name, options.python)
        if not found and options.systems:
            raise Refused(f"--systems: {name} cannot be measured here: {missing[-1]['reason']}")
        systems += found
        left_out += missing
    return systems, left_out


class Hosts:
    """Namespaces of this machine with cables between them, which end with this object, each with a share of the cores (0: of
    all). One host with all cores is the machine itself."""

    def __init__(self, place, options, count, cores=0):
        self.network = {"hosts": count, "mbit_per_second": options.rate_mbit, "delay_ms": options.delay_ms}
        self.folder, self.count, self.cores, self.is_made = place.folder, count, cores, count > 1 or cores > 0
        self.port = 29400  # of host 0, another one for each system: all run at the same time

    def __enter__(self):
        if self.is_made:
            words = [WORKER, "hosts", *map(str, self.network.values()), str(self.cores)]
            self.maker = subprocess.Popen(words, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True,
                                          start_new_session=True, env={**os.environ, "TMPDIR": self.folder})
            try:
                made = self.maker.stdout.readline()
            except Stopped:
                self.__exit__()
                raise
            if not made:
                raise Failed(self.maker.stderr.read().strip().removeprefix("lockstep: error: "))
            self.hosts = json.loads(made)
        return self

    def __exit__(self, *_):
        if self.is_made:
            self.maker.communicate()  # which closes its input

    def sent_bytes(self):
        """So far, by host 0, with all headers; 0 where there is one host."""
        if self.count == 1:
            return 0
        with open(self.hosts[0]["sent_bytes"]) as file:
            return int(file.read())

    def spread(self, systems):
        """The same systems with their replicas spread over the hosts."""
        return [changed(system, self.place) for system in systems] if self.is_made else systems

    def place(self, programs):
        if programs[0].words[0] == WORKER:  # one program of a system, which becomes one for each host
            self.port += 1
            addresses = [host["address"] for host in self.hosts]
            programs = [Program([*programs[0].words, str(host), str(self.port), *addresses]) for host in range(self.count)]
        return [Program([*self.hosts[number * self.count // len(programs)]["command"], *words],
                        {**environment, "GLOO_SOCKET_IFNAME": "eth0"})
                for number, (words, environment) in enumerate(programs)]
