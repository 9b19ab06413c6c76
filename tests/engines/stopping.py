"""Trainings that are stopped and go on: once, again and again, and in the middle of a save. Each engine has its ways: a
way(lab, training) starts it by start(), stops it by stop(), which returns when nothing of it runs any more, and waits by end()
until it has come to its own end."""

import time

from training import LONG
from waiting import Failed, wait_until

STOPS = 20  # of a training that is stopped often
OFTEN = f"{STOPS} %s: each leaves a checkpoint of the last step, and the end has the bits of one host"
# More steps than are made before the last stop, and saves so often that some are under way when it comes.
ENDURING = [*LONG, "--set", "trainer.steps=1000", "--set", "checkpoint.every=5"]


def gap(lab):
    """Waits as long as a signal may come to a host after it has come to another one."""
    time.sleep(lab.random.uniform(0, 0.2))


def go_on(training, way):
    way.start()
    way.end()
    training.check_went_on()
    training.check_end(hosts=2)


def stop_once(lab, way):
    training = lab.training(LONG)
    way = way(lab, training)
    with lab.cluster.slow_cables():
        way.start()
        training.wait_for_step()
        way.stop()
        training.check_stopped()
    go_on(training, way)


def stop_often(lab, way):
    """Each start goes on from where the one before was stopped. The last one comes to its end."""
    training = lab.training(ENDURING)
    way = way(lab, training)
    with lab.cluster.slow_cables("4mbit"):
        for count in range(1, STOPS + 1):
            way.start()
            training.wait_for_step(max(training.stops(), default=0) + 1)
            time.sleep(lab.random.uniform(0, 2))
            way.stop()
            if len(training.stops()) != count or training.resumptions() != training.stops()[:-1]:
                raise Failed(f"by stop {count} it says that it has stopped after {training.stops()}, and gone on after "
                             f"{training.resumptions()}")
            training.check_stopped()
    go_on(training, way)


def cut_off(lab, way, disk_s, rate="4mbit"):
    """Saves take longer than the engine waits until it kills: the run goes on from the checkpoint before. `disk_s`: how long the
    disk takes each time, eight times in a save. `rate`: of the cables, on which a step takes less than the engine waits."""
    training = lab.training(LONG)
    way = way(lab, training)
    with lab.cluster.slow_cables(rate), lab.cluster.slow_disk(disk_s):
        way.start()
        wait_until("it has a checkpoint", training.checkpoints, 180)
        way.stop()
        newest = training.checkpoints()[-1]
        way.start()
        wait_until("it goes on", lambda: f"step {newest + 1}/" in training.said().partition("going on after step ")[2], 120)
        way.stop()
    if training.stops():
        raise Failed(f"it has stopped after {training.stops()}; it should be killed twice")
    way.start()
    way.end()
    if training.resumptions() != [newest, newest]:
        raise Failed(f"it has gone on after {training.resumptions()}, not twice after {newest}, its newest checkpoint")
    training.check_end(hosts=2)
