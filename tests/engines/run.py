"""Runs the checks of tests/engines.sh, in namespaces that it has made: see there."""

import argparse
import contextlib
import os
import pathlib
import secrets
import signal
import subprocess
import sys
import time
import traceback

from checks import CHECKS, Lab
from cluster import Cluster
from waiting import Failed, wait_until

import on_slurm  # noqa: F401, isort: skip
import on_mpi  # noqa: F401, isort: skip
import on_torchrun  # noqa: F401, isort: skip
import on_kubernetes  # noqa: F401, isort: skip


def picked(words):
    def is_picked(check):
        if check.kind == "stops" and "stops" not in words:
            return False
        return all(word in (check.engine, check.kind) or word in check.name for word in words)
    return [check for check in CHECKS if is_picked(check)]


def kill_trainings(cluster):
    """Those that outlive their check, and jobs that would start them later."""
    if cluster.slurm:
        subprocess.run(["scancel", "--user=root"], capture_output=True)
    for pid in cluster.processes(name="train"):
        with contextlib.suppress(ProcessLookupError):  # it has just ended
            os.kill(pid, signal.SIGKILL)


def passes(check, cluster, folder, seed):
    """Runs a check, and prints its line."""
    begin = time.monotonic()
    folder.mkdir(parents=True)
    lab = Lab(cluster, folder, seed)
    problem = None
    try:
        if check.engine == "slurm":
            cluster.start_slurm()
        check.function(lab)
        wait_until("nothing of the training still runs", lambda: not cluster.processes(name="train"), 10)
    except Failed as failed:
        problem = failed
    except Exception:  # the check is wrong, and the others go on
        problem = traceback.format_exc()
    kill_trainings(cluster)
    for process in lab.started:
        if process.poll() is None:
            os.killpg(process.pid, signal.SIGKILL)
    print(f"{'ok' if problem is None else 'FAILED':<7}{check.engine:<11}{check.name:<80}"
          f"{time.monotonic() - begin:6.1f} s", flush=True)
    if problem is not None:
        print(f"  {problem}\n{lab.tail_of_logs()}{cluster.tail_of_daemons()}", flush=True)
    return problem is None


def main():
    parser = argparse.ArgumentParser(prog="tests/engines.sh", allow_abbrev=False)
    parser.add_argument("--folder", type=pathlib.Path, help=argparse.SUPPRESS)
    parser.add_argument("--train", type=pathlib.Path, help="the program, where it is not to be built")
    parser.add_argument("--times", type=int, default=1, help="how often each check runs")
    parser.add_argument("-l", action="store_true", help="list the checks")
    parser.add_argument("words", nargs="*", help="which checks: an engine, short, stops, or words of their names")
    arguments = parser.parse_args()
    checks = picked(arguments.words)
    if arguments.l or not checks:
        for check in checks if arguments.words and checks else CHECKS:
            print(f"{check.engine:<11}{check.name}{f' ({check.kind})' if check.kind else ''}")
        return 0 if checks else f"tests/engines.sh: no check is called {' '.join(arguments.words)}; these there are"
    begin = time.monotonic()
    seed = os.environ.get("LOCKSTEP_SEED") or secrets.randbelow(10**6)
    if any(check.kind == "stops" for check in checks):
        print(f"stops: LOCKSTEP_SEED={seed}", flush=True)
    cluster = Cluster(arguments.folder, arguments.train.resolve())
    failed = []
    for time_ in range(arguments.times):
        if arguments.times > 1:
            print(f"== {time_ + 1} of {arguments.times}", flush=True)
        for number, check in enumerate(checks):
            if not passes(check, cluster, arguments.folder / f"checks/{time_}/{number}", f"{seed} {check.name} {time_}"):
                failed.append(f"{check.engine}: {check.name}")
    count = len(checks) * arguments.times
    print(f"{count - len(failed)} of {count} checks passed, in {time.monotonic() - begin:.0f} s" +
          "".join(f"\nfailed: {name}" for name in failed))
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main())
