"""bench as users run it: what it measures, prints and writes, how it ends, and what it leaves behind."""

import json
import os
import signal
import subprocess
import sys
import tempfile
import time
import unittest

BENCH = os.environ["LOCKSTEP_BENCH"]
NOWHERE = ["--python", "/nowhere/python"]
# For a run that goes on until it is ended.
LONG = ["collectives", "--systems", "psum,pmap", "--sizes", "1MiB", "--replicas", "2", "--repetitions", "10000", "--operations",
        "all_reduce"]


def children_of(pid):
    try:
        with open(f"/proc/{pid}/task/{pid}/children") as file:
            return list(map(int, file.read().split()))
    except OSError:
        return []


def descendants(pid):
    return [pid, *(each for child in children_of(pid) for each in descendants(child))]


def is_running(pid):
    try:
        with open(f"/proc/{pid}/stat") as file:
            return file.read().rpartition(")")[2].split()[0] not in "ZX"
    except OSError:
        return False


def eventually(look, seconds=120):
    deadline = time.monotonic() + seconds
    while not (found := look()):
        if time.monotonic() > deadline:
            raise AssertionError("it does not happen")
        time.sleep(0.02)
    return found


class Command(unittest.TestCase):
    def setUp(self):
        self.temporary, self.work = (self.enterContext(tempfile.TemporaryDirectory()) for _ in range(2))
        self.environment = {**os.environ, "TMPDIR": self.temporary,
                            "PATH": f"{os.path.dirname(sys.executable)}:{os.environ['PATH']}"}

    def tearDown(self):
        self.assertEqual(os.listdir(self.temporary), [])

    def begin(self, *words):
        return subprocess.Popen([BENCH, *words], cwd=self.work, env=self.environment, stdout=subprocess.PIPE,
                                stderr=subprocess.PIPE, text=True, stdin=subprocess.DEVNULL)

    def run_bench(self, *words, status=0):
        process = self.begin(*words)
        self.out, self.err = process.communicate()
        self.assertEqual(process.returncode, status, self.out + self.err)
        return self.out

    def measured(self, *words, says=()):
        """The report in JSON."""
        out = self.run_bench(*words, "--json", "out.json")
        for text in says:
            self.assertIn(text, out)
        with open(f"{self.work}/out.json") as file:
            return json.load(file)

    def read(self, name):
        with open(f"{self.work}/{name}", "rb") as file:
            return file.read()

    def script(self, name, text):
        with open(f"{self.work}/{name}", "w") as file:
            file.write(f"#!/bin/sh\n{text}\n")
        os.chmod(file.name, 0o755)
        return file.name

    def test_collectives(self):
        found = self.measured("collectives", "--sizes", "8,64KiB", "--replicas", "2", "--repetitions", "3", *NOWHERE, "--plot",
                              "out.svg", says=["symmetric: LibTorch", "\ngloo: ", "bus GB/s", "== all_gather, 2",
                                               "c10d is left out: /nowhere/python cannot run it: "])
        self.assertEqual([result["operation"] for result in found["results"]], ["all_reduce", "reduce_scatter", "all_gather"])
        for result in found["results"]:
            self.assertGreater(result["limit"]["bytes_per_second"], 1e8)
            for size in result["sizes"]:
                self.assertEqual([each["system"] for each in size["measurements"]][:4], ["symmetric", "psum", "pmap", "gloo"])
                for each in size["measurements"]:
                    self.assertEqual(len(each["samples"]), 3)
                    self.assertGreater(each["seconds"]["median"], 0)
        self.assertIn(b"all_gather, 2 replicas", self.read("out.svg"))

    def test_replicas_may_be_threads_and_one_alone(self):
        out = self.run_bench("collectives", "--systems", "psum,symmetric", "--launch", "threads,processes", "--sizes", "12",
                             "--replicas", "1,3", "--repetitions", "1")
        for text in "symmetric threads", "== all_gather, 3 replicas":
            self.assertIn(text, out)

    def test_vdot_and_vmap_check_their_results(self):
        found = self.measured("vdot", "--systems", "pmap,serial,libtorch", "--repetitions", "2",
                              says=["pmap: the result differs from float64's by"])
        self.assertEqual((len(found["measurements"]), found["replicas"]), (3, 8))
        found = self.measured("vmap", "--lanes", "3,8", "--repetitions", "2", *NOWHERE,
                              says=["torch.func is left out: /nowhere/python cannot run it", "== psum: ", "time a lane"])
        self.assertEqual([(row["name"], row["lanes"]) for row in found["results"]],
                         [("lanes", 3), ("lanes", 8), ("psum", 3), ("psum", 8)])

    def test_training_measures_steps_and_launches(self):
        found = self.measured("training", "--models", "mlp", "--replicas", "2,1", "--batch", "4", "--repetitions", "2",
                              "--stages", "0,3", *NOWHERE, "--plot", "out.svg",
                              says=["fsdp is left out: /nowhere/python", "torchrun is left out: /nowhere/python", "of floor",
                                    "== mlp, 1863690 parameters, 1 replica of 4 samples; floor ",
                                    "== launch to first step, pmean_linear, 4 processes"])
        self.assertEqual([result["replicas"] for result in found["results"]], [1, 2])
        for result in found["results"]:
            self.assertEqual([each["system"] for each in result["measurements"]], ["alone", "stage 0", "stage 3"])
            for each in result["measurements"]:
                self.assertEqual(len(each["samples"]), 2)
                parts = each["measured_parts"]
                self.assertGreater(parts["backward"], 0)
                self.assertLess(sum(parts.values()), 1.5 * each["seconds"]["median"])
                self.assertGreater(min(each["peak_bytes"], each["host_bytes"]), 1 << 20)
        self.assertEqual(found["launches"]["measurements"][0]["system"], "train")
        self.assertIn(b"mlp, 1863690 parameters, 2 replicas, batch 4", self.read("out.svg"))

    def test_training_of_other_models_and_by_threads(self):
        found = self.measured("training", "--measure", "steps", "--models", "resnet,gpt,cnn", "--systems", "stage0", "--data",
                              "memory,augmented", "--replicas", "2", "--batch", "2", "--repetitions", "1", "--launch", "threads",
                              says=["== cnn, 421642 parameters", "== resnet, 77754 parameters", "== gpt, 842496 parameters"])
        threads = ["alone", "stage 0 threads", "stage 0 augmented threads"]
        self.assertEqual([[each["system"] for each in result["measurements"]] for result in found["results"]],
                         [threads, threads[:2], threads])
        self.assertRegex(self.out, r"\nstage 0 augmented threads: [\d.]+ times as long as stage 0 threads\n")

    def test_training_measures_how_memory_grows_over_steps(self):
        found = self.measured("training", "--measure", "memory", "--steps", "120", "--models", "mlp", "--systems", "stage0",
                              "--replicas", "2", "--batch", "2", says=["== memory over steps, mlp, 2 replicas"])
        self.assertEqual([row["system"] for row in found["memory"]], ["alone", "stage 0"])
        for row in found["memory"]:
            self.assertEqual(row["steps"], 120)
            self.assertGreater(row["first_bytes"], 4 * 4 * 1863690)  # parameters, gradients, Adam's state
            self.assertLess(row["host_bytes"], row["first_bytes"] + 30e6)

    def test_checkpoint(self):
        places = [self.enterContext(tempfile.TemporaryDirectory()) for _ in range(2)]
        found = self.measured("checkpoint", "--parameters", "5K", "--repetitions", "2", "--folders", ",".join(places), *NOWHERE,
                              "--plot", "out.png", says=["torch_save is left out: ", "limits in GB/s: write ", "loaded by",
                                                         "4 replicas, stage 3", "1 replica, stage 0"])
        self.assertEqual(self.read("out.png")[:4], b"\x89PNG")
        self.assertEqual((found["bytes"], len(found["results"])), (60_000, 2))
        for result in found["results"]:
            (own,) = result["measurements"]
            self.assertEqual([len(own[part]["samples"]) for part in ("save", "load", "save_memory")], [2, 2, 2])
            self.assertTrue(own["save"]["median"] > own["pause"]["median"] > 0)
            self.assertEqual([each["replicas"] for each in result["reloads"]], [4, 4, 1])
            self.assertGreater(result["reloads"][0]["predicted"]["median"], 0)
        for place in places:
            self.assertEqual(os.listdir(place), [])

    def test_parts(self):
        # A Python whose libraries read at once, but for pandas.
        python = self.script("python", '[ $2 = loadtxt ] || exit 1\n[ $3 = --version ] && echo 2.3.4 && exit\n'
                             'echo step 1 on $(tail -n +2 $3 | wc -l) samples')
        found = self.measured("parts", "--columns", "20", "--repetitions", "2", "--python", python,
                              says=["pandas is left out: ", "loadtxt 2.3: NumPy 2.3.4, ", "x train, 20 columns",
                                    "\nloadtxt 2.3, 4 columns", "== replicated: ", "\nmemory, read once"])
        self.assertEqual([result["unit"] for result in found["results"]], ["", "MiB"])

    def test_recorder_and_peak(self):
        found = self.measured("recorder", "--repetitions", "3", says=["== span: ", "\nspan ", "\nclock "])
        for each in found["results"][0]["measurements"]:
            self.assertEqual(len(each["samples"]), 3)
            self.assertTrue(0 < each["seconds"]["median"] < 1e-4)
        self.environment["XDG_CACHE_HOME"] = f"{self.work}/cache"
        self.run_bench("peak", "--repetitions", "1")
        peaks = json.loads(self.read("cache/lockstep/peaks.json"))
        self.assertEqual(len(peaks), 2)
        for name, rate in peaks.items():
            self.assertRegex(name, " cores?, LibTorch ")
            self.assertGreater(rate, 1e8)

    def test_a_picture_is_drawn_by_the_first_python_that_can(self):
        bad = self.script("python3", "echo no matplotlib; exit 1")
        self.environment["PATH"] = f"{self.work}:/usr/bin:/bin"
        self.run_bench("recorder", "--repetitions", "1", "--plot", "out.svg", "--python", f"{bad},{sys.executable}")
        self.assertIn(b"</svg>", self.read("out.svg"))

    def test_a_picture_that_cannot_be_drawn_is_refused_before_anything_is_measured(self):
        with open(f"{self.work}/matplotlib.py", "w") as file:
            file.write("raise ImportError('it is broken')")
        self.environment.update(PYTHONPATH=self.work, PATH="/nowhere")
        self.assertEqual(self.run_bench("vdot", "--plot", "out.svg", "--python", sys.executable, status=2), "")
        self.assertEqual(self.err.count("\n"), 1)
        self.assertIn("--plot needs a Python that has matplotlib (Debian: python3-matplotlib); tried "
                      f"{sys.executable}: {sys.executable} cannot import matplotlib: it is broken; python3: cannot run python3: "
                      "No such file or directory", self.err)

    def test_where_the_picture_cannot_be_written_what_was_measured_is_there(self):
        self.script("python3", "[ $2 = --version ] && exit\necho no space; exit 1")
        self.environment["PATH"] = f"{self.work}:/usr/bin:/bin"
        self.assertIn("== span: ", self.run_bench("recorder", "--repetitions", "1", "--json", "out.json", "--plot", "out.svg",
                                                  status=1))
        self.assertEqual(self.err, "lockstep: error: --plot: no space\n")
        self.assertEqual(len(json.loads(self.read("out.json"))["results"]), 1)

    def test_help_and_version(self):
        for words in ["--help"], ["vdot", "--help"]:
            out = self.run_bench(*words)
            for text in "bench scaling [flags]", "--delay-ms N", "How is measured", "Several hosts", "Exit status", "stage0":
                self.assertIn(text, out)
        self.assertEqual(self.run_bench("--version"), f"lockstep {os.environ['LOCKSTEP_VERSION']}\n")

    def test_what_is_not_understood_is_one_line(self):
        for words, text in (["colectives"], "unknown measurement 'colectives'"), (["vdot", "--systems", "gloo"], "--systems: unkn"):
            self.assertEqual(self.run_bench(*words, status=2), "")
            self.assertEqual((self.err.count("\n"), self.err.startswith(f"lockstep: error: {text}")), (1, True), self.err)

    def ends(self, process, act, status, says):
        everything = descendants(process.pid)
        act()
        _, err = process.communicate(timeout=60)
        self.assertEqual(process.returncode, status, err)
        self.assertRegex(err, says)
        eventually(lambda: not any(map(is_running, everything)))

    def await_worker(self, process):
        """A psum worker with its two replicas."""
        return eventually(lambda: next((child for child in children_of(process.pid) if len(children_of(child)) == 2), None))

    def test_a_system_that_loses_a_process_ends_the_measurement(self):
        process = self.begin(*LONG)
        replica = children_of(self.await_worker(process))[1]
        self.ends(process, lambda: os.kill(replica, signal.SIGKILL), 3, "(?s)^lockstep: error: psum, 2 replicas: .*replica 1")

    def test_a_signal_ends_everything(self):
        for number, text in (signal.SIGINT, "Ctrl-C"), (signal.SIGTERM, "SIGTERM"), (signal.SIGHUP, "SIGHUP"):
            process = self.begin(*LONG)
            self.await_worker(process)
            self.ends(process, lambda: process.send_signal(number), 128 + number, f"stopped by {text}")
            # A Python that does not answer.
            python = self.script("python", "exec sleep 1000")
            process = self.begin("collectives", "--systems", "c10d", "--python", python)
            eventually(lambda: children_of(process.pid))
            self.ends(process, lambda: process.send_signal(number), 128 + number, f"stopped by {text}")


if __name__ == "__main__":
    unittest.main()
