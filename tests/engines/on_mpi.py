"""Checks under Open MPI: configs/cluster/mpirun.sh from node0, with tasks on all nodes."""

import signal

from checks import SHIPPED, check
from cluster import run
from on_slurm import wait_for
from training import EXAMPLE, LONG, PERCEPTRON

MPIRUN = ["bash", SHIPPED / "mpirun.sh"]


@check("mpi", "mpirun trains the example with the bits of one host", is_short=True)
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


def check_signal(lab, number):
    training = lab.training(LONG)
    with lab.cluster.slow_cables():
        job = lab.start(training, *MPIRUN, *training.flags)
        training.wait_for_step()
        job.send_signal(number)
        lab.end(job, status=None)
        training.check_stopped()
    lab.end(lab.start(training, *MPIRUN, *training.flags))
    training.check_went_on()
    training.check_end(hosts=2)


@check("mpi", "TERM to mpirun: a checkpoint, from which the same command goes on")
def terminated(lab):
    check_signal(lab, signal.SIGTERM)


@check("mpi", "USR1 to mpirun: a checkpoint, from which the same command goes on")
def asked(lab):
    check_signal(lab, signal.SIGUSR1)
