"""Checks under torchrun: configs/cluster/torchrun.sh on each node."""

import os
import signal
import time

from checks import SHIPPED, check
from stopping import OFTEN, cut_off, gap, stop_often, stop_once
from training import EXAMPLE, LONG, PERCEPTRON
from waiting import Failed, wait_until


def start(lab, training, node, hosts="2"):
    """Starts an agent, which sees soon that another one is lost."""
    os.environ["PET_RDZV_CONF"] = "last_call_timeout=3,keep_alive_interval=1,keep_alive_max_attempt=3"
    return lab.start(training, "bash", SHIPPED / "torchrun.sh", hosts, "node0:29400", *training.flags, node=node)


def start_both(lab, training, hosts="2"):
    return [start(lab, training, node, hosts) for node in (0, 1)]


def end_both(lab, agents, status=0):
    for agent in agents:
        lab.end(agent, status)


class Terminated:
    """TERM to both agents."""

    def __init__(self, lab, training):
        self.lab = lab
        self.training = training

    def start(self):
        self.agents = start_both(self.lab, self.training)

    def stop(self):
        for agent in self.lab.random.sample(self.agents, 2):
            agent.terminate()
            gap(self.lab)
        self.end(status=None)

    def end(self, status=0):
        end_both(self.lab, self.agents, status)


class Interrupted(Terminated):
    """Ctrl-C where one agent runs, and later where the other does, unless that has ended itself."""

    def stop(self):
        for agent in reversed(self.agents):
            if agent.poll() is None:
                os.killpg(agent.pid, signal.SIGINT)
            self.lab.end(agent, status=None)
            time.sleep(6)  # each looks every 5 seconds whether what it has started has ended


def launcher(lab, agent):
    """The process of train that an agent has started."""
    def found():
        for pid in lab.cluster.processes(name="train"):
            with open(f"/proc/{pid}/stat") as stat:
                if int(stat.read().rpartition(")")[2].split()[1]) == agent.pid:
                    return pid
        return None
    return wait_until("an agent has started train", found, 30)


@check("torchrun", "torchrun trains the example with the bits of one host")
def example(lab):
    training = lab.training(EXAMPLE)
    end_both(lab, start_both(lab, training))
    training.check_end(hosts=2)


@check("torchrun", "torchrun trains the perceptron with the bits of one host")
def perceptron(lab):
    training = lab.training(PERCEPTRON)
    end_both(lab, start_both(lab, training))
    training.check_end(hosts=2)


@check("torchrun", "TERM to the agents: a checkpoint, from which the same command goes on")
def terminated(lab):
    stop_once(lab, Terminated)


@check("torchrun", "Ctrl-C to one agent, later to the other: a checkpoint, from which the same command goes on")
def interrupted(lab):
    stop_once(lab, Interrupted)


@check("torchrun", "a worker is killed: the agents start all again, and they go on")
def worker_killed(lab):
    training = lab.training(LONG)
    with lab.cluster.slow_cables():
        agents = start_both(lab, training)
        training.wait_for_step(30)
        os.kill(launcher(lab, agents[1]), signal.SIGKILL)
        wait_until("it goes on", training.resumptions)
    end_both(lab, agents)
    training.check_end(hosts=2)


@check("torchrun", "an agent dies: the run goes on to its end")
def agent_dies(lab):
    training = lab.training(LONG)
    with lab.cluster.slow_cables():
        agents = start_both(lab, training, "1:2")
        training.wait_for_step(30)
        os.kill(agents[1].pid, signal.SIGKILL)
    # What the agent had started has not noticed. The other agent would wait for it for minutes.
    wait_until("the run has its result", (training.output / "result.json").exists, 90)
    training.check_end(hosts=2)


@check("torchrun", "a node fails: the other one goes on with as many replicas")
def node_lost(lab):
    training = lab.training(LONG)
    with lab.cluster.slow_cables():
        agents = start_both(lab, training, "1:2")
        training.wait_for_step(30)
        for pid in (launcher(lab, agents[1]), agents[1].pid):
            os.kill(pid, signal.SIGKILL)
        lab.end(agents[0])
    if not training.resumptions():
        raise Failed("it has not gone on from a checkpoint")
    training.check_end(hosts=1)


@check("torchrun", "agents join, up to four, and one is lost: all go on each time, with as many replicas")
def four_agents(lab):
    # More steps than pass while agents begin.
    training = lab.training([*LONG, "--set", "trainer.steps=1200", "--set", "checkpoint.every=100"])

    def wait_for_hosts(count):
        wait_until(f"replicas are on {count} hosts", lambda: f"4 replicas on {count} hosts" in training.said(), 90)
        training.wait_for_step(training.step() + 10)

    with lab.cluster.slow_cables():
        agents = [start(lab, training, node, "1:4") for node in (0, 1)]
        wait_for_hosts(2)
        agents += [start(lab, training, node, "1:4") for node in (2, 3)]
        wait_for_hosts(4)
        training.check_went_on()
        for pid in (launcher(lab, agents[2]), agents[2].pid):
            os.kill(pid, signal.SIGKILL)
        wait_for_hosts(3)
    for node in (0, 1, 3):
        lab.end(agents[node])
    training.check_end(hosts=3)


@check("torchrun", OFTEN % "TERMs to the agents", kind="stops")
def often_terminated(lab):
    stop_often(lab, Terminated)


@check("torchrun", "its 30 s are too short for a save: the run goes on from the checkpoint before", kind="stops")
def cut_off_by_agents(lab):
    cut_off(lab, Terminated, disk_s=7)
