"""Checks under Slurm: what srun starts, and what becomes of jobs of configs/cluster/slurm.sbatch."""

import os
import re
import signal

from checks import SHIPPED, check
from cluster import run
from stopping import OFTEN, cut_off, stop_often, stop_once
from training import EXAMPLE, LONG, PERCEPTRON
from waiting import Failed, wait_until

SRUN = ["srun", "--nodes=2", "--ntasks-per-node=1", "-c", "2"]


def submit(lab, training, *flags):
    """The number of a batch job that trains. The shipped script asks for more cores and time than a test has."""
    return run("sbatch", "--parsable", "--cpus-per-task=1", "--time=10", f"--output={training.log}", *flags,
               SHIPPED / "slurm.sbatch", *training.flags).strip()


def wait_for(job, *states, seconds=90):
    """Waits for one of these states. A job that is queued again would start in two minutes: it gets three seconds each time, in
    which nodes come to believe that it is another one than the one that they have ended."""
    hastened = "0"  # its last start for which this was done

    def is_there():
        nonlocal hastened
        now, times = re.search(r"JobState=(\S+).* Restarts=(\d+)", run("scontrol", "show", "job", job), re.S).groups()
        if now in states:
            return True
        if now == "PENDING":
            if times != hastened:
                run("scontrol", "update", f"JobId={job}", "StartTime=now+3")
                hastened = times
        elif now not in ("RUNNING", "COMPLETING", "CONFIGURING", "REQUEUED"):
            raise Failed(f"job {job} is {now}, and not {' or '.join(states)}")
        return False
    wait_until(f"job {job} is {' or '.join(states)}", is_there, seconds, pause=0.1)


class Cancelled:
    """A batch job, by scancel: the next one goes on."""

    def __init__(self, lab, training):
        self.lab = lab
        self.training = training

    def start(self):
        self.job = submit(self.lab, self.training)

    def stop(self):
        run("scancel", self.job)
        wait_for(self.job, "CANCELLED")
        wait_until("nothing of the job still runs", lambda: not any(
            self.lab.cluster.processes(name=name) for name in ("srun", "train")), 30)

    def end(self):
        wait_for(self.job, "COMPLETED")


class Requeued:
    """A batch job, by scontrol: it is queued again."""

    def __init__(self, lab, training):
        self.job = None
        self.submit = lambda: submit(lab, training)

    def start(self):
        self.job = self.job or self.submit()
        wait_for(self.job, "RUNNING")

    def stop(self):
        run("scontrol", "requeue", self.job)
        wait_for(self.job, "PENDING")

    def end(self):
        wait_for(self.job, "COMPLETED")


@check("slurm", "srun trains the example with the bits of one host", kind="short")
def example(lab):
    training = lab.training(EXAMPLE)
    lab.end(lab.start(training, *SRUN, "train", *training.flags))
    training.check_end(hosts=2)


@check("slurm", "srun trains the perceptron with the bits of one host")
def perceptron(lab):
    training = lab.training(PERCEPTRON)
    lab.end(lab.start(training, *SRUN, "train", *training.flags))
    training.check_end(hosts=2)


@check("slurm", "several tasks on a node are one run, which scancel ends with a checkpoint, and which goes on")
def several_tasks(lab):
    training = lab.training(LONG)
    command = ["srun", "--job-name=tasks", "--nodes=2", "--ntasks=4", "-c", "1", "train", *training.flags, "--resume", "auto"]
    with lab.cluster.slow_cables():
        step = lab.start(training, *command)
        training.wait_for_step()
        run("scancel", "--name=tasks")
        lab.end(step, status=None)
        training.check_stopped()
    lab.end(lab.start(training, *command))
    training.check_went_on()
    training.check_end(hosts=2)
    if training.said().count("lockstep: 4 replicas on 2 hosts") != 4:
        raise Failed("on each node one task runs its replicas, at first and when it goes on")


@check("slurm", "two steps of a job at once meet apart")
def two_steps(lab):
    trainings = [lab.training(EXAMPLE, name) for name in ("one", "other")]
    steps = " & ".join(f"{' '.join(SRUN)} --overlap train {' '.join(each.flags)}" for each in trainings)
    both = lab.training(EXAMPLE, "batch")
    job = run("sbatch", "--parsable", "--nodes=2", "--ntasks-per-node=1", "-c2", f"--output={both.log}", "--wrap",
              f"{steps} & wait").strip()
    wait_for(job, "COMPLETED")
    for training in trainings:
        training.check_end(hosts=2)


@check("slurm", "scancel ends with a checkpoint, from which the same sbatch goes on", kind="short")
def cancelled(lab):
    stop_once(lab, Cancelled)


@check("slurm", "a job that is queued again goes on")
def requeued(lab):
    stop_once(lab, Requeued)


@check("slurm", "a warning before the time limit: a checkpoint, and the job queues itself again")
def warned(lab):
    training = lab.training(LONG)
    with lab.cluster.slow_cables("4mbit"):
        job = submit(lab, training, "--time=1", "--signal=TERM@20")  # when 10 to 40 s are over
        wait_until("train was told to end", training.stops, 90)
        training.check_stopped()
        wait_for(job, "PENDING")
    wait_for(job, "COMPLETED")
    training.check_went_on()
    training.check_end(hosts=2)


@check("slurm", "a time limit ends with a checkpoint, from which the same srun goes on")
def timed_out(lab):
    training = lab.training(LONG)
    command = [*SRUN, "train", *training.flags, "--resume", "auto"]
    with lab.cluster.slow_cables("2mbit"):
        lab.end(lab.start(training, *command[:3], "--time=1", *command[3:]), status=None, seconds=150)
    training.check_stopped()
    lab.end(lab.start(training, *command))
    training.check_went_on()
    training.check_end(hosts=2)


def lose_node(lab, training, *flags):
    """node1 fails while the training's job, which is returned, runs there; Slurm is told."""
    with lab.cluster.slow_cables():
        job = submit(lab, training, *flags)
        training.wait_for_step(30)
        lab.cluster.crash(1)
        run("scontrol", "update", "NodeName=node1", "State=DOWN", "Reason=crashed")
        wait_for(job, "PENDING")
    return job


@check("slurm", "a node fails: the job goes on when it is back")
def node_lost(lab):
    training = lab.training(LONG)
    job = lose_node(lab, training)
    lab.cluster.start_slurm()
    wait_for(job, "COMPLETED")
    if not training.resumptions():
        raise Failed("it has not gone on from a checkpoint")
    training.check_end(hosts=2)


@check("slurm", "a node fails: the job goes on without it, with as many replicas")
def fewer_nodes(lab):
    training = lab.training(LONG)
    job = lose_node(lab, training, "--nodes=1-2")
    wait_for(job, "COMPLETED")
    if not training.resumptions():
        raise Failed("it has not gone on from a checkpoint")
    training.check_end(hosts=1)


@check("slurm", "a job that takes precedence: a checkpoint, and the first goes on after it")
def preempted(lab):
    training = lab.training(LONG)
    with lab.cluster.slow_cables():
        job = submit(lab, training)
        training.wait_for_step()
        other = lab.training(EXAMPLE, "urgent")
        lab.end(lab.start(other, "srun", "--partition=urgent", "--nodes=2", "--exclusive", "--ntasks-per-node=1",
                          "hostname"))
        training.check_stopped()
    # Slurm before 26.05 believes at its end that it has given way once more, and starts it again: train ends at once.
    wait_for(job, "COMPLETED")
    training.check_went_on()
    training.check_end(hosts=2)


@check("slurm", "a launcher is killed: the step ends everywhere, and the same srun goes on")
def killed(lab):
    training = lab.training(LONG)
    command = [*SRUN, "train", *training.flags, "--resume", "auto"]
    with lab.cluster.slow_cables():
        step = lab.start(training, *command)
        training.wait_for_step(30)
        launcher = min(lab.cluster.processes(node=1, name="train"))
        os.kill(launcher, signal.SIGKILL)
        lab.end(step, status=137)
    lab.end(lab.start(training, *command))
    if not training.resumptions():
        raise Failed("it has not gone on from a checkpoint")
    training.check_end(hosts=2)


@check("slurm", OFTEN % "scancels", kind="stops")
def often_cancelled(lab):
    stop_often(lab, Cancelled)


@check("slurm", OFTEN % "requeues", kind="stops")
def often_requeued(lab):
    stop_often(lab, Requeued)


@check("slurm", "KillWait is too short for a save: the run goes on from the checkpoint before", kind="stops")
def cut_off_by_slurm(lab):
    cut_off(lab, Cancelled, disk_s=4)
