"""The processes of the systems: how they start, do what they are asked (see ../systems/link.h), take turns and end."""

import contextlib
import ctypes
import os
import resource
import select
import shutil
import signal
import subprocess
import tempfile
import time
from collections import namedtuple
from dataclasses import dataclass, field
from statistics import median

from texts import Failed, counted

SILENCE = 120  # seconds: a program that says nothing for so long has failed
FINISH_PATIENCE, STOP_PATIENCE = 10, 1.5  # seconds: a system that ends by itself cleans up what it has here
LAST_LINES = 8
SET_PDEATHSIG, SET_CHILD_SUBREAPER = 1, 36  # of prctl()
SIGNALS = {signal.SIGINT: "Ctrl-C", signal.SIGTERM: "SIGTERM", signal.SIGHUP: "SIGHUP"}
libc = ctypes.CDLL(None)

# A program to start: its words, the first a path or a name to be found in PATH, and additions to the environment.
Program = namedtuple("Program", "words environment", defaults=({},))
# How a program ended: `status` is as a shell has it (124: it was silent), `last_line` that of its output.
Ended = namedtuple("Ended", "status output last_line")
# A batch of calls: from the first replica's begin to the last one's end; of each part the replicas' mean and largest.
Ran = namedtuple("Ran", "seconds parts largest")
# `programs(replicas, folder)` are those that run so many replicas, each of which serves in the folder. One controller may
# drive all replicas, and `replicas` may say how many there are, whoever asks for more.
System = namedtuple("System", "name label version own programs one_controller replicas", defaults=(False, None))


class Stopped(Exception):
    """A signal asks the driver to end: no failure of what it interrupts."""

    def __init__(self, number):
        super().__init__(f"stopped by {SIGNALS[number]}; all replicas have ended")
        self.status = 128 + number


def children():
    for entry in filter(str.isdigit, os.listdir("/proc")):
        with contextlib.suppress(OSError), open(f"/proc/{entry}/stat") as file:
            if int(file.read().rpartition(")")[2].split()[1]) == os.getpid():
                yield int(entry)


def ignore_signals():
    for number in SIGNALS:
        signal.signal(number, signal.SIG_IGN)


def stop(number, _):
    ignore_signals()
    raise Stopped(number)


class Workplace:
    """Temporary folders, the signals that end the measurement, and all processes below this one, which end with it."""

    def __enter__(self):
        libc.prctl(SET_CHILD_SUBREAPER, 1)
        most = resource.getrlimit(resource.RLIMIT_NOFILE)[1]
        resource.setrlimit(resource.RLIMIT_NOFILE, (most, most))
        signal.signal(signal.SIGCHLD, signal.SIG_DFL)  # or the ends of programs would not be seen
        for number in SIGNALS:
            if signal.getsignal(number) != signal.SIG_IGN:  # as after nohup
                signal.signal(number, stop)
        self.folders = []
        self.folder = self.new_folder()
        return self

    def __exit__(self, *_):
        ignore_signals()
        # The children of a killed process become children of this one, and are killed next.
        deadline = time.monotonic() + 2
        while time.monotonic() < deadline and (found := list(children())):
            for pid in found:
                os.kill(pid, signal.SIGKILL)
                with contextlib.suppress(ChildProcessError):
                    os.waitpid(pid, 0)
        for folder in self.folders:
            shutil.rmtree(folder, ignore_errors=True)

    def new_folder(self, parent=None):
        """It goes away with the processes that write there."""
        self.folders.append(tempfile.mkdtemp(prefix="lockstep-", dir=parent))
        return self.folders[-1]


def start(program, output):
    """The program starts in a process group of its own (Ctrl-C is for the driver), without input. It ends with this process."""
    def in_child():
        os.setpgid(0, 0)
        libc.prctl(SET_PDEATHSIG, signal.SIGTERM)

    try:
        return subprocess.Popen(program.words, stdin=subprocess.DEVNULL, stdout=output, stderr=subprocess.STDOUT,
                                preexec_fn=in_child, env={**os.environ, **program.environment})
    except OSError as error:
        raise Failed(f"cannot run {program.words[0]}: {error.strerror}") from None


def wait_for(*descriptors):
    """The descriptors that are ready; none after SILENCE, in which pauses of this process do not count."""
    poll = select.poll()
    for descriptor in descriptors:
        poll.register(descriptor, select.POLLIN)
    ready = next(filter(None, (poll.poll(100) for _ in range(SILENCE * 10))), [])
    return [descriptor for descriptor, _ in ready]


def run(program, look=lambda output: None):
    """Runs a program to its end. `look` gets all of its output whenever there is more."""
    try:
        process = start(program, subprocess.PIPE)
    except Failed as error:
        return Ended(127, "", str(error))
    output, ready, part = "", True, b" "
    with process.stdout:
        while part and (ready := wait_for(process.stdout)):
            part = os.read(process.stdout.fileno(), 65536)
            output += part.decode(errors="replace")
            look(output)
    if not ready:
        os.killpg(process.pid, signal.SIGKILL)
    status = process.wait()
    last_line = (output.rstrip().splitlines() or [""])[-1]
    return Ended(status if status >= 0 else 128 - status, output, last_line) if ready else Ended(
        124, output, "it has not ended in time")


def make_fifo(path):
    """The FIFO is open in both directions: opening and reading do not depend on its other users. It closes with this process,
    however that ends, which replicas see as the end of their commands."""
    os.mkfifo(path, 0o600)
    return os.open(path, os.O_RDWR | os.O_CLOEXEC)


class Workers:
    """The running replicas of a system. Failed names the system, and has the last lines of what it printed."""

    def __init__(self, place, system, replicas):
        self.system, self.replicas = system, system.replicas or replicas
        self.links = 1 if system.one_controller else self.replicas
        self.folder = tempfile.mkdtemp(dir=place.folder)
        self.answers = make_fifo(f"{self.folder}/answers")
        self.commands = [make_fifo(f"{self.folder}/commands.{rank}") for rank in range(self.links)]
        self.received = b""
        self.processes = {}  # by a descriptor that is readable once the process has ended
        with open(f"{self.folder}/output", "ab") as output:
            for program in system.programs(self.replicas, self.folder):
                try:
                    process = start(program, output)
                except Failed as error:
                    self.fail(error)
                self.processes[os.pidfd_open(process.pid)] = process

    def fail(self, what):
        with open(f"{self.folder}/output", errors="replace") as file:
            lines = [f"\n  {line.rstrip()}" for line in file if line.strip(" -\n")][-LAST_LINES:]
        said = f"the last that it printed:{''.join(lines)}" if lines else "it printed nothing"
        raise Failed(f"{self.system.label}, {counted(self.replicas, 'replica')}: {what}; {said}")

    def receive(self):
        ready = wait_for(self.answers, *self.processes)
        if not ready:
            self.fail(f"has not answered for {SILENCE} seconds")
        if self.answers not in ready:
            time.sleep(0.3)  # others may be about to say why
            process = self.processes[ready[0]]
            status = process.wait()
            ended = f"ended with status {status}" if status >= 0 else f"was killed by signal {-status}"
            self.fail(f"process {process.pid} {ended}")
        self.received += os.read(self.answers, 65536)

    def ask(self, request, expected):
        """One answer of each replica, without its rank and the expected first word."""
        for command in self.commands if request else []:
            os.write(command, f"{request}\n".encode())
        answers = {}
        while len(answers) < self.links:
            while b"\n" not in self.received:
                self.receive()
            line, _, self.received = self.received.partition(b"\n")
            text = line.decode(errors="replace")
            rank, verb, answer = (text + "  ").split(" ", 2)
            if not rank.isdecimal() or int(rank) >= self.links or verb != expected:
                self.fail(f"has answered '{text}', not {expected}")
            answers[int(rank)] = answer.strip()
        return [answers[rank] for rank in sorted(answers)]

    def prepare(self, operation, amount):
        """Makes the buffers of an operation. Returns replica 0's note."""
        return self.ask(f"prepare {operation} {amount}", "prepared")[0]

    def run(self, calls):
        answers = [answer.split() for answer in self.ask(f"run {calls}", "ran")]
        begin, end = min(int(answer[0]) for answer in answers), max(int(answer[1]) for answer in answers)
        parts = list(zip(*(map(float, answer[2:]) for answer in answers)))
        return Ran((end - begin) * 1e-9, [sum(part) / self.links for part in parts], [max(part) for part in parts])

    def memory(self):
        """Bytes: the peak of the process that had the most, and what all have now, shared pages counted once."""
        by_process = {pid: numbers for pid, *numbers in (map(int, answer.split()) for answer in self.ask("memory", "memory"))}
        return {"peak_bytes": 1024 * max(peak for peak, _ in by_process.values()),
                "host_bytes": 1024 * sum(now for _, now in by_process.values())}

    def finish(self):
        """Asks the replicas to end."""
        for command in self.commands:
            os.close(command)

    def end(self, patience):
        for number, seconds in (None, patience), (signal.SIGTERM, 2), (signal.SIGKILL, 2):
            deadline = time.monotonic() + seconds
            for process in self.processes.values():
                if number and process.poll() is None:
                    os.killpg(process.pid, number)
                with contextlib.suppress(subprocess.TimeoutExpired):
                    process.wait(max(0, deadline - time.monotonic()))
        for descriptor in self.answers, *self.processes:
            os.close(descriptor)


class Crew:
    """All systems of a measurement side by side, ready for their turns."""

    def __init__(self, place, systems, replicas):
        self.place, self.systems, self.replicas, self.members = place, systems, replicas, []

    def __enter__(self):
        try:
            for system in self.systems:
                self.members.append(Workers(self.place, system, self.replicas))
            for member in self.members:
                member.ask(None, "hello")
        except BaseException as error:
            self.__exit__(type(error))
            raise
        return self

    def __exit__(self, error, *_):
        for member in self.members:
            member.finish()
        for member in self.members:
            member.end(STOP_PATIENCE if error else FINISH_PATIENCE)

    def turns(self, repetitions):
        """Members in turn, beginning with another one each time, so that other work on the machine disturbs all alike."""
        for repetition in repetitions:
            first = repetition % max(len(self.members), 1)
            yield from self.members[first:] + self.members[:first]


@dataclass
class Measurement:
    """The time of one system for one case: lists have an entry a batch."""
    system: System
    samples: list = field(default_factory=list)  # seconds a call
    calls: int = 1  # in a batch
    note: str = ""
    turns: list = field(default_factory=list)  # seconds of each part of a call
    largest: list = field(default_factory=list)  # of each part of a batch, of any replica
    sent: list = field(default_factory=list)  # bytes in a call by one of several hosts, with all headers
    memory: dict = field(default_factory=dict)

    @property
    def parts(self):
        return [median(part) for part in zip(*self.turns)]


def calls_of_batch(member, batch_seconds):
    """Calls that take about as long as a batch should. The first ones may be slow for reasons of their own: asked for at once
    are never more than ten times of those that were seen."""
    calls = 1
    while True:
        seconds = max(member.run(calls).seconds, 1e-9)
        wanted = min(max(round(batch_seconds * calls / seconds), 1), 100_000)
        if seconds >= batch_seconds / 2 or wanted <= 2 * calls:
            return wanted
        calls = min(wanted, 10 * calls)


def measure(crew, operation, amount, repetitions, batch_seconds=3e-3, case_seconds=2, fewest=5, most=25, sent_bytes=lambda: 0):
    """Measures an operation on all systems: batches in turn, `repetitions` times, or until `case_seconds` have passed. A sample
    is a batch's time over its calls. Before that each system's result is checked, and one batch is run."""
    found = []
    for member in crew.members:
        note = member.prepare(operation, amount)
        found.append(Measurement(member.system, calls=calls_of_batch(member, batch_seconds), note=note))
    begin = time.monotonic()

    def rounds():
        for number in range(repetitions or most):
            if not repetitions and number >= fewest and time.monotonic() - begin > case_seconds:
                return
            yield number

    for member in crew.turns(rounds()):
        measurement, before = found[crew.members.index(member)], sent_bytes()
        ran = member.run(measurement.calls)
        measurement.samples.append(ran.seconds / measurement.calls)
        measurement.turns.append([part / measurement.calls for part in ran.parts])
        measurement.largest.append(ran.largest)
        measurement.sent.append((sent_bytes() - before) / measurement.calls)
    return found


def measure_launches(place, systems, replicas, result, repetitions, progress):
    """For each system in turn: the seconds from starting its program to the line that begins with "step 1"; somewhere in the
    output is `result`."""
    found = [Measurement(system) for system in systems]
    for repetition in range(repetitions):
        for measurement in found:
            system, seconds = measurement.system, []
            progress(f"launch {repetition + 1} of {system.label}")
            (program,) = system.programs(replicas, tempfile.mkdtemp(dir=place.folder))
            begin = time.monotonic()
            ended = run(program, lambda output: "\nstep 1" in "\n" + output and seconds.append(time.monotonic() - begin))
            # PyTorch 2.15's processes abort at times when they end, long after the step.
            failed = ended.status == 124 or ended.status and (system.own or not seconds)
            if failed or not seconds or result not in ended.output:
                why = f"did not print {result}" if seconds and not failed else "made no step" if not failed else (
                    f"ended with status {ended.status}" if ended.status != 124 else ended.last_line)
                raise Failed(f"{system.label}, {counted(replicas, 'replica')}: {why}; it printed:\n"
                             f"{ended.output or ended.last_line}")
            measurement.samples.append(seconds[0])
    return found
