"""Checks under Open MPI: configs/cluster/mpirun.sh from node0, with tasks on all nodes."""

import functools
import os
import shutil
import signal

from checks import SHIPPED, check
from cluster import run
from on_slurm import wait_for
from stopping import OFTEN, cut_off, stop_often, stop_once
from training import EXAMPLE, PERCEPTRON

MPIRUN = ["bash", SHIPPED / "mpirun.sh"]


class Shipped:
    """mpirun.sh, and a signal to it and what is in its group, as Ctrl-C comes to them."""

    def __init__(self, lab, training, number=signal.SIGTERM):
        self.lab = lab
        self.training = training
        self.number = number

    def start(self):
        self.job = self.lab.start(self.training, *MPIRUN, *self.training.flags)

    def stop(self):
        os.killpg(self.job.pid, self.number)
        self.lab.end(self.job, status=None)

    def end(self):
        self.lab.end(self.job)


class Plain(Shipped):
    """mpirun by hand, with what it does by default, and a signal to it alone."""

    def start(self):
        self.job = self.lab.start(self.training, "mpirun", "--hostfile", os.environ["HOSTFILE"], "-N", 1, "--bind-to", "none",
                                  shutil.which("train"), *self.training.flags, "--resume", "auto")

    def stop(self):
        self.job.send_signal(self.number)
        self.lab.end(self.job, status=None)


@check("mpi", "mpirun trains the example with the bits of one host", kind="short")
def example(lab):
    training = lab.training(EXAMPLE)
    lab.end(lab.start(training, *MPIRUN, *training.flags))
    training.check_end(hosts=2)


@check("mpi", "mpirun trains the perceptron with the bits of one host")
def perceptron(lab):
    training = lab.training(PERCEPTRON)
    lab.end(lab.start(training, *MPIRUN, *training.flags))
    training.check_end(hosts=2)


@check("mpi", "mpirun in a batch script of Slurm trains with the bits of one host")
def under_slurm(lab):
    lab.cluster.start_slurm()
    training = lab.training(EXAMPLE)
    job = run("sbatch", "--parsable", "--nodes=2", "--ntasks-per-node=1", "-c2", f"--output={training.log}", "--wrap",
              f"mpirun -N 1 --bind-to none train {' '.join(training.flags)}").strip()
    wait_for(job, "COMPLETED")
    training.check_end(hosts=2)


@check("mpi", "TERM to mpirun.sh: a checkpoint, from which the same command goes on")
def terminated(lab):
    stop_once(lab, Shipped)


@check("mpi", "Ctrl-C in mpirun.sh: a checkpoint, from which the same command goes on")
def interrupted(lab):
    stop_once(lab, functools.partial(Shipped, number=signal.SIGINT))


@check("mpi", "USR1 to mpirun: a checkpoint, from which the same command goes on")
def asked(lab):
    stop_once(lab, functools.partial(Plain, number=signal.SIGUSR1))


@check("mpi", OFTEN % "TERMs to mpirun.sh", kind="stops")
def often_terminated(lab):
    stop_often(lab, Shipped)


@check("mpi", "mpirun's second or less is too short for a save: the run goes on from the checkpoint before", kind="stops")
def cut_off_by_mpirun(lab):
    cut_off(lab, Plain, disk_s=1, rate="16mbit")
