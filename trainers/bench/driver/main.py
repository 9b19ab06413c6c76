"""Measures Lockstep beside other libraries: the command `bench`."""

import json
import os
import sys
from pathlib import Path

import measurements
from crew import Program, Stopped, Workplace, run
from flags import HELP, parse_flags
from systems import PLOT, ask_worker
from texts import Failed, Refused


def show(text=""):
    """A line on stderr that says what bench is doing, if that is a terminal."""
    if sys.stderr.isatty():
        print(f"\r\033[K{text}", end="", file=sys.stderr, flush=True)


def print_result(text):
    show()
    print(text, end="", flush=True)


def find_plotter(options):
    """The first interpreter that can draw for --plot, looked for before anything is measured. The python3 of a user's own
    often lacks what the machine's has."""
    tried = []
    for python in dict.fromkeys([*options.python, "python3", "/usr/bin/python3"]):
        ended = run(Program([python, PLOT, "--version"]))
        if ended.status == 0:
            return python
        tried.append(f"{python}: {ended.last_line}")
    raise Refused("--plot needs a Python that has matplotlib (Debian: python3-matplotlib); tried " + "; ".join(tried))


def measure(options):
    with Workplace() as place:
        plotter = options.plot and find_plotter(options)
        bench = measurements.Bench(place, options, show, print_result)
        more = getattr(measurements, options.measurement)(bench)
        text = json.dumps({**bench.head, **more, "results": bench.results}, indent=2) + "\n"
        if options.json:
            Path(options.json).write_text(text)
        if options.plot:
            Path(place.folder, "table.json").write_text(text)
            ended = run(Program([plotter, PLOT, f"{place.folder}/table.json", os.path.abspath(options.plot)]))
            if ended.status:
                raise RuntimeError(f"--plot: {ended.last_line}")


def main(arguments):
    try:
        options = parse_flags(arguments)
        if options.measurement == "--help":
            print(HELP, end="")
        elif options.measurement == "--version":
            print("lockstep", ask_worker("facts")["lockstep"])
        else:
            measure(options)
        sys.stdout.flush()
        return 0
    except BrokenPipeError:
        os.dup2(os.open(os.devnull, os.O_WRONLY), 1)  # the reader has gone ("| head")
        return 141
    except (Failed, Stopped, OSError, RuntimeError) as error:
        show()
        print(f"lockstep: error: {error}", file=sys.stderr)
        return getattr(error, "status", 1)
