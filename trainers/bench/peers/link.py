"""One replica of a system that bench measures, as ../systems/link.h says it: a task does what the driver asks."""

import os
import sys
import time


def kilobytes(file, name):
    """The number in the line "name:   123 kB"."""
    with open(file) as lines:
        return next(int(line.split()[1]) for line in lines if line.startswith(name + ":"))


def resident_bytes(name):
    """VmRSS: of memory that is resident now. VmHWM: the most since the start or forget_peak()."""
    return 1024 * kilobytes("/proc/self/status", name)


def forget_peak():
    """From now on VmHWM is the most since this call, where the kernel allows that."""
    try:
        with open("/proc/self/clear_refs", "w") as file:
            file.write("5")
    except OSError:
        pass


def serve(task, folder, rank):
    """Does what the driver asks of this replica until the driver hangs up.

    A task has prepare(operation, size), which makes the buffers, calls the operation once, checks the result and
    returns a note for the reader; call(); and maybe barrier(), and parts(), the seconds that parts of the calls since the
    last time took.
    """
    barrier = getattr(task, "barrier", lambda: None)
    parts = getattr(task, "parts", lambda: [])
    answers = os.open(os.path.join(folder, "answers"), os.O_WRONLY)

    def answer(text):
        os.write(answers, f"{rank} {text}\n".encode())

    with open(os.path.join(folder, f"commands.{rank}")) as commands:
        answer("hello")
        while line := commands.readline():
            verb, *words = line.split()
            if verb == "prepare":
                operation, size = words
                answer(f"prepared {task.prepare(operation, int(size))}")
            elif verb == "run":
                barrier()
                parts()
                begin = time.monotonic_ns()
                for _ in range(int(words[0])):
                    task.call()
                end = time.monotonic_ns()
                answer(" ".join(map(str, ["ran", begin, end, *parts()])))
            elif verb == "memory":
                peak = kilobytes("/proc/self/status", "VmHWM")
                answer(f"memory {os.getpid()} {peak} {kilobytes('/proc/self/smaps_rollup', 'Pss')}")
            else:
                raise ValueError(f"the driver said {line!r}")


def main(make_task, version):
    """A peer's program: [NAME] --version prints its library's version, by version(NAME...); NAME RANK REPLICAS FOLDER is a
    replica of the system called so, by make_task(NAME, RANK, REPLICAS, FOLDER)."""
    *words, last = sys.argv[1:]
    if last == "--version":
        print(version(*words))
    else:
        name, rank, replicas = words
        serve(make_task(name, int(rank), int(replicas), last), last, int(rank))


def torch_version(*_):
    import torch
    import torch.distributed as dist

    if not (dist.is_available() and dist.is_gloo_available()):
        sys.exit("this PyTorch has no torch.distributed with Gloo")
    return torch.__version__.split("+")[0]


def torch_main(make_task, version=torch_version):
    """The same in PyTorch, with one math thread: make_task(NAME, RANK, REPLICAS) after all have met over Gloo."""
    import torch
    import torch.distributed as dist

    def after_meeting(name, rank, replicas, folder):
        torch.set_num_threads(1)
        dist.init_process_group("gloo", init_method=f"file://{folder}/rendezvous", rank=rank, world_size=replicas)
        return make_task(name, rank, replicas)

    main(after_meeting, version)
    if dist.is_available() and dist.is_initialized():
        dist.destroy_process_group()
