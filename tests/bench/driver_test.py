"""The driver of bench, without its worker: flags, figures, tables, and what becomes of systems that fail."""

import os
import re
import sys
import time
import unittest
from types import SimpleNamespace
from unittest import mock

SOURCE = os.path.realpath(f"{os.path.dirname(os.path.realpath(__file__))}/../..")
sys.path.insert(0, f"{SOURCE}/trainers/bench/driver")
import crew  # noqa: E402
import flags  # noqa: E402
import report  # noqa: E402
import systems  # noqa: E402
import texts  # noqa: E402
from crew import Measurement, Program, System  # noqa: E402

MS = 1e-3
ONE_HOST = {"hosts": 1, "mbit_per_second": 0, "delay_ms": 0}


def page(name):
    with open(f"{SOURCE}/{name}") as file:
        return file.read()


class Texts(unittest.TestCase):
    def test_numbers_have_three_digits_and_times_the_unit_in_which_they_have(self):
        for value, text in {0: "0.0000", 0.01234: "0.0123", 0.5: "0.500", 1.234: "1.23", 9.996: "10.0", 99.96: "100"}.items():
            self.assertEqual(texts.digits_text(value), text)
        for value, text in {0.25e-6: "0.250 us", 999.4e-6: "999 us", 999.7e-6: "1.00 ms", 12.44e-3: "12.4 ms",
                            1.25: "1.25 s"}.items():
            self.assertEqual(texts.time_text(value), text)
        self.assertEqual([texts.size_text(size) for size in (8, 1 << 10, 1000, 3 << 20)], ["8 B", "1 KiB", "1000 B", "3 MiB"])

    def test_quartiles_interpolate(self):
        for samples, found in ([7], (7, 7, 7)), ([5, 1, 4, 2, 3], (2, 3, 4)), ([40, 10, 30, 20], (17.5, 25, 32.5)):
            quartiles = texts.quartiles(samples)
            self.assertEqual((quartiles["lower_quartile"], quartiles["median"], quartiles["upper_quartile"]), found)


class Flags(unittest.TestCase):
    def test_what_breaks_a_rule_is_refused_with_the_flag_and_the_rule(self):
        for words, message in {
            "": "a measurement is needed: collectives, vdot, vmap, training, scaling, checkpoint, parts, peak or recorder; see",
            "colectives": "unknown measurement 'colectives' (did you mean 'collectives'?): ",
            "collectives --size 8": "unknown flag --size (did you mean '--sizes'?); see bench --help",
            "vdot --sizes 8": "unknown flag --sizes",
            "collectives stray": "'stray' is no flag; see bench --help",
            "collectives --sizes": "--sizes lacks its value",
            "collectives --sizes --json": "--sizes lacks its value",
            "collectives --sizes 8,1.5MiB": "--sizes: '1.5MiB' is no size",
            "collectives --sizes ,8": "--sizes: '' is no size",
            "collectives --systems psum,,pmap": "--systems: an entry of the list is empty",
            "collectives --sizes 6": "--sizes: 6 is no whole number of float32 values, which take 4 bytes each",
            "collectives --operations gather": "--operations: 'gather' is unknown (did you mean 'all_gather'?); there are all_red",
            "collectives --replicas 0": "--replicas: '0' is no whole number from 1 to 64",
            "collectives --replicas 2,x": "--replicas: 'x' is no whole number from 1 to 64",
            "collectives --launch thread": "--launch: 'thread' is unknown (did you mean 'threads'?)",
            "vmap --lanes 0": "--lanes: '0' is no whole number from 1 to 100000",
            "training --measure step": "--measure: 'step' is unknown (did you mean 'steps'?); there are steps, launches, memory",
            "training --models vit": "--models: 'vit' is unknown; there are mlp, cnn, resnet, gpt",
            "training --stages 4": "--stages: '4' is no whole number from 0 to 3",
            "collectives --hosts 2 --replicas 4,3": "--replicas: 3 cannot be spread evenly over 2 hosts",
            "collectives --hosts 2 --launch threads": "--launch: on several hosts replicas are processes",
            "training --delay-ms -0.1": "--delay-ms: '-0.1' is no number from 0 to 1000",
            "training --batch 1_0": "--batch: '1_0' is no whole number from 1 to 4096",
            "training --delay-ms nan": "--delay-ms: 'nan' is no number from 0 to 1000",
            "training --hosts 2 --measure launches": "--measure: launches are those of one host",
            "checkpoint --parameters 5m": "--parameters: '5m' is no number of parameters, such as 5000 or 100M",
            "checkpoint --folders /nowhere": "--folders: '/nowhere' is no folder that can be written to",
            "parts --measure steps": "--measure: 'steps' is unknown; there are table, replicated",
            "parts --systems train": "unknown flag --systems",
            "collectives --json /nowhere/out.json": "--json: the folder /nowhere cannot be written to",
            "collectives --plot=": "--plot: '' is no file's name",
            "vdot --plot out.gif": "--plot: 'out.gif' does not end in .svg, .png or .pdf",
        }.items():
            with self.subTest(words), self.assertRaises(texts.Refused) as refused:
                flags.parse_flags(words.split())
            self.assertEqual(str(refused.exception)[:len(message)], message)

    def test_values_are_read(self):
        options = flags.parse_flags("training --hosts 2 --delay-ms 0.1 --stages 3,0,3 --batch=7".split())
        self.assertEqual((options.delay_ms, options.stages, options.batch, options.replicas, options.measure),
                         (0.1, [3, 0], 7, [4], ["steps"]))
        self.assertEqual(flags.parse_flags(["collectives", "--sizes", "1MiB, 8"]).sizes, [8, 1 << 20])
        self.assertEqual(flags.parse_flags(["vdot", "--help"]).measurement, "--help")

    def test_help_has_a_rule_for_each_flag_and_the_page_has_the_same_flags(self):
        self.assertEqual(set(flags.flags()), {*flags.RULES, "--version", "--help"})
        self.assertLessEqual(max(map(len, flags.HELP.splitlines())), 100)
        rows = re.findall(r"^\| `(--[\w-]+) ?(\w*)` \| (.*) \|$", page("trainers/bench/README.md"), re.M)
        shown = [(name, argument, about + (f" [{', '.join(names)}]" if names != flags.COMMANDS else ""))
                 for name, (argument, about, names) in flags.flags().items()]
        self.assertEqual(rows, shown)

    def test_the_pages_commands_are_understood_and_their_pictures_are_there(self):
        found = 0
        for name in "README.md", "trainers/bench/README.md":
            text = page(name)
            for words in re.findall(r"build/release/trainers/bench ((?:.*\\\n)*.*)", text):
                options = flags.parse_flags(words.replace("\\\n", "").partition("#")[0].split())
                found += 1
                if options.plot:
                    self.assertTrue(f"{options.plot}\"" in text, options.plot)
                    self.assertTrue(os.path.exists(f"{SOURCE}/trainers/bench/{options.plot}"))
        self.assertGreater(found, 8)

    def test_systems_are_found_by_name_and_stage(self):
        def wanted(names):
            options = SimpleNamespace(systems=names, python=["/nowhere/python"], stages=[0, 2], launch=["processes"],
                                      data=["memory"])
            found, left_out = systems.find_systems(options, systems.training_systems(options, ""), ["ddp"])
            return [system.label for system in found], left_out

        self.assertEqual(wanted(["stage2"])[0], ["alone", "stage 2"])
        self.assertEqual(wanted(["stage 0", "stage2"])[0], ["alone", "stage 0", "stage 2"])
        labels, left_out = wanted(None)
        self.assertEqual(labels, ["alone", "stage 0", "stage 2"])
        self.assertRegex(left_out[0]["reason"], "^/nowhere/python cannot run it: cannot run /nowhere/python: No such file")
        for names, message in {("ddp",): "--systems: ddp cannot be measured here: /nowhere/python cannot run it: ",
                               ("stage1",): "--systems: unknown system 'stage1' .*; there are lockstep, stage0, stage2, ddp",
                               ("dpd",): r"--systems: unknown system 'dpd' \(did you mean 'ddp'\?\)"}.items():
            with self.assertRaisesRegex(texts.Refused, message):
                wanted(list(names))


def of(label, samples, own=False, name=None, turns=(), **more):
    return Measurement(System(name or label, label, "", own, None), samples, 3,
                       turns=[[part * MS for part in turn] for turn in turns], **more)


class Collectives(unittest.TestCase):
    def test_rates_count_as_nccl_and_the_memory_have_them(self):
        self.assertEqual([report.usable_size(*case) for case in (("all_reduce", 3, 8), ("reduce_scatter", 3, 8),
                                                                 ("all_gather", 3, 1024))], [8, 12, 1032])
        self.assertEqual([report.bus_bytes("all_reduce", replicas, 100) for replicas in (1, 2, 4)], [0, 100, 150])
        self.assertEqual(report.bus_bytes("all_gather", 4, 100), 75)
        self.assertEqual([report.moved_bytes(operation, 4, 100) for operation in ("all_reduce", "reduce_scatter", "all_gather")],
                         [800, 500, 600])

    def test_tables(self):
        limit = {"bytes_per_second": 32e9, "threads": 2, "how": "normal stores"}
        sizes = [(1024, [of("psum", [2e-6, 3e-6, 4e-6], True), of("c10d 2.9", [300e-6] * 3)]),
                 (4_000_000, [of("psum", [1e-3] * 3, True), of("c10d 2.9", [4e-3, 4e-3, 5e-3])])]
        json = report.operation_json("all_reduce", 2, limit, ONE_HOST, sizes, ["c10d 2.9: measured so"])
        self.assertEqual(report.operation_text(json), """\
== all_reduce, 2 replicas; limit: 32.0 GB/s read and written by 2 threads, normal stores

time a call              psum         c10d 2.9
1 KiB        3.00 us -17 +17%    300 us -0 +0%
4000000 B      1.00 ms -0 +0%  4.00 ms -0 +12%

bus GB/s    psum  c10d 2.9
1 KiB      0.341    0.0034
4000000 B   4.00      1.00

of limit   psum  c10d 2.9
1 KiB        4%
4000000 B   50%

times as fast      psum
as             c10d 2.9
1 KiB               100
4000000 B          4.00

c10d 2.9: measured so

""")
        network = {"hosts": 2, "mbit_per_second": 400, "delay_ms": 0}
        for measurement in sizes[1][1]:
            measurement.sent = [3 << 20]
        on_hosts = report.operation_text(report.operation_json("all_reduce", 4, None, network, sizes[1:], []))
        for text in "4 replicas on 2 hosts, 400 Mbit/s\n", "4000000 B   32000      8000\n", "4000000 B           3.00      3.00\n":
            self.assertIn(text, on_hosts)
        large = json["sizes"][1]
        self.assertEqual((large["moved_bytes"], large["measurements"][0]["share_of_limit"]), (16e6, 0.5))
        self.assertNotIn("share_of_limit", large["measurements"][1])


def example():
    """A million parameters: their update at 28 GB/s takes 1 ms."""
    steps = [of("alone", [9 * MS], True, "lockstep", [[0, 3, 5, 0, 1]]),
             of("stage 0", [12.5 * MS], True, "lockstep", [[0.25, 3.5, 6, 0.75, 2]]),
             of("plain 1.13", [13 * MS], False, "plain", [[0, 3, 6.5, 0, 3.5]]),
             of("ddp 1.13", [25 * MS], False, "ddp", [[0.5, 4, 16.5, 0, 4]], note="its fastest Adam here is fused")]
    for step in steps:
        step.memory = {"peak_bytes": 100 << 20, "host_bytes": 150 << 20}
    return steps


LIMIT = {"bytes_per_second": 28e9, "threads": 2, "how": "memcpy"}


def trained(steps, parameters=(1_000_000,), network=ONE_HOST):
    return report.training_json("mlp", parameters, 2, 64, LIMIT, network, steps)


class Training(unittest.TestCase):
    def check(self, found, milliseconds):
        for one, other in zip(found, milliseconds, strict=True):
            self.assertAlmostEqual(one, other * MS)

    def exposed(self, steps, number):
        return trained(steps)["measurements"][number]["exposed_parts"].values()

    def test_the_floor_is_what_runs_alone_and_adams_bytes_at_the_memorys_speed(self):
        self.check(trained(example())["floor"].values(), [9, 8, 1])
        self.assertNotIn("floor", trained(example()[1:]))

    def test_what_takes_longer_than_alone_is_communication_turn_by_turn(self):
        steps = example()
        alone, stage, *_ = steps
        self.check(self.exposed(steps, 1), [0.25, 3, 5, 3.25, 1])
        self.check(self.exposed(steps, 3), [0.5, 3, 6.5, 11.5, 3.5])
        for sharded in "zero", "fsdp":
            peer = of(f"{sharded} 1.13", [20 * MS], False, sharded, [[0, 3, 7.5, 0, 9]])
            self.check(self.exposed([*steps, peer], 4), [0, 3, 6.5, 8.25, 1.75])
        # Without the plain loop of its version a peer's parts are as measured.
        self.check(self.exposed([alone, steps[3]], 1), [0.5, 4, 16.5, 0, 4])
        # In its turns forward takes 1, 9 and 1 ms longer than alone.
        alone.turns, stage.turns = ([[0, forward * MS, 5 * MS, 0, 1 * MS] for forward in turns]
                                    for turns in ((3, 1, 2), (4, 10, 3)))
        self.check(self.exposed(steps, 1), [0, 2, 5, 1, 1])
        self.assertEqual(report.times_faster({"samples": [2, 10, 6]}, {"samples": [1, 20, 3]}), "0.500")

    def test_on_several_hosts_each_stage_has_the_bound_of_its_own_bytes(self):
        network = {"hosts": 2, "mbit_per_second": 800, "delay_ms": 1}  # 100 KB take a ms

        def bounds(parameters, ready):
            names = {"stage 1": "lockstep", "stage 2 threads": "lockstep", "stage 3": "lockstep", "ddp 9": "ddp", "zero 9": "zero",
                     "fsdp 9": "fsdp"}
            steps = [of("alone", [9 * MS], True, "lockstep", [[0, 3, 5, 0, 1, *ready]], sent=[0]),
                     *(of(label, [1], False, name, [[0, 3, 5, 0, 1]], sent=[0]) for label, name in names.items())]
            result = trained(steps, parameters, network)
            return [each / MS for each in [result["bound_seconds"], *(row["bound_seconds"] for row in result["measurements"][1:])]]

        # An all-reduce has 1.3 MB from the second gradient on; a reduce-scatter half of that, and all bytes take 15 ms, or 22.5.
        for found, expected in zip(bounds([75_000, 250_000, 50_000], [8, 7, 4]), [21, 15, 15, 22.5, 21, 22.5, 22.5], strict=True):
            self.assertAlmostEqual(found, expected)
        # A gradient that is ready late.
        for found, expected in zip(bounds([250_000, 2500, 0], [9, 1, 1]), [20, 15, 15, 15.15, 20, 20, 15.15], strict=True):
            self.assertAlmostEqual(found, expected)
        self.assertAlmostEqual(bounds([0, 0, 0], [8, 7, 4])[1], 8 + 1)  # the last gradient and the delay
        steps = [of("alone", [9 * MS], True, "lockstep", [[0, 3, 5, 0, 1, 8]], sent=[0]),
                 of("stage 0", [12.5 * MS], True, "lockstep", [[0.25, 3.5, 6, 0.75, 2]], sent=[500_000])]
        stage = trained(steps, network=network)["measurements"][1]
        self.check([stage["cable_seconds"], stage["hidden_seconds"]], [5, 1.75])  # of 5 ms a step waits for 3.25
        self.assertNotIn("bound_seconds", trained(steps, network={**network, "mbit_per_second": 0}))

    def test_tables(self):
        self.assertEqual(report.training_text(trained(example())), """\
== mlp, 1000000 parameters, 2 replicas of 64 samples; floor 9.00 ms: 8.00 ms forward and backward, 1.00 ms update at 28.0 GB/s

                    a step  steps/s    data  forward  backward  communication  update  of floor  peak MiB  host MiB
alone       9.00 ms -0 +0%      111  0.0000     3.00      5.00         0.0000    1.00                 100       150
stage 0     12.5 ms -0 +0%     80.0   0.250     3.00      5.00           3.25    1.00       72%       100       150
plain 1.13  13.0 ms -0 +0%     76.9  0.0000     3.00      6.50         0.0000    3.50       69%       100       150
ddp 1.13    25.0 ms -0 +0%     40.0   0.500     3.00      6.50           11.5    3.50       36%       100       150

times as fast as  stage 0
plain 1.13           1.04
ddp 1.13             2.00

exposed, of that of  stage 0
plain 1.13
ddp 1.13                 28%

ddp 1.13: its fastest Adam here is fused

""")
        own = trained(example())["measurements"][1]
        self.assertAlmostEqual(own["measured_parts"]["backward"], 6 * MS)
        augmented = of("stage 0 augmented", [12.75 * MS], True, "lockstep", [[0.5, 3.5, 6, 0.75, 2]])
        self.assertIn("\nstage 0 augmented: 1.02 times as long as stage 0\n",
                      report.training_text(trained([*example(), augmented])))

    def test_scaling_is_a_row_a_system(self):
        rows = [{"system": system, "hosts": hosts, "seconds": texts.quartiles([seconds]),
                 "efficiency": texts.quartiles([efficiency])} for system in ("stage 0", "ddp 2.9")
                for hosts, seconds, efficiency in ((1, 0.01, 1), (2, 0.02, 0.5))]
        self.assertEqual(report.scaling_text("mlp", rows, {"hosts": 8, "mbit_per_second": 100, "delay_ms": 0.5}, 0.25), """\
== scaling, mlp, a replica a host of 0.25 cores, 100 Mbit/s, 0.5 ms away

hosts                             1               2
stage 0, a step      10.0 ms -0 +0%  20.0 ms -0 +0%
ddp 2.9, a step      10.0 ms -0 +0%  20.0 ms -0 +0%
stage 0, efficiency            100%             50%
ddp 2.9, efficiency            100%             50%

""")


class Others(unittest.TestCase):
    def test_tables_of_checkpoints_and_parts(self):
        mib = 1 << 20

        def medians(label, own, *parts, **more):
            return of(label, [], own, largest=[parts], **more)

        own = medians("stage 2", True, 1, 0.1, 0.4, 580 * mib, 4 * mib, note="keeps a copy")
        json = report.checkpoint_json("/disk", "ext4", 1_200_000_000, 2, medians("limits", True, 0.8, 0.2, 0.1, 0.05), [
            own, medians("dcp 2.9", False, 2, 2, 1, 10 * mib, 100 * mib)],
            [(4, medians("stage 3", True, 0.5, 10 * mib, 500 * mib, 400 * mib))])
        self.assertEqual(report.checkpoint_text(100_000_000, 1_200_000_000, json), """\
== 1.20 GB, 100000000 parameters with Adam's state, of 2 replicas, in /disk, ext4; limits in GB/s: write 1.50, read 6.00, \
copy 12.0, checksum 24.0

                  save   GB/s  of limit          pause  of save           load  GB/s  save MiB  load MiB
stage 2  1.00 s -0 +0%   1.20       80%  100 ms -0 +0%      10%  400 ms -0 +0%  3.00       580      4.00
dcp 2.9  2.00 s -0 +0%  0.600       40%  2.00 s -0 +0%     100%  1.00 s -0 +0%  1.20      10.0       100

save: times as fast as  stage 2
dcp 2.9                    2.00

pause: times as fast as  stage 2
dcp 2.9                     20.0

load: times as fast as  stage 2
dcp 2.9                    2.50

loaded by                     time  holds MiB  predicted  more MiB  of it
4 replicas, stage 3  500 ms -0 +0%        500        400      10.0     2%

stage 2: keeps a copy

""")
        self.assertEqual(report.part_text(report.part_json("replicated", "a check", [
            of("check", [0.03, 0.04, 0.05]), of("memory", [0.002])], "MiB", 10)), """\
== replicated: a check

              time a MiB  x check
check   4.00 ms -12 +12%     1.00
memory     200 us -0 +0%   0.0500

""")

    def test_the_heading_says_what_is_left_out_and_that_the_machine_is_busy(self):
        facts = {"lockstep": "1", "machine": {"cpu": "A CPU", "instructions": "", "cores": 2, "memory_bytes": 8 << 30,
                                              "load": 3.84, "kernel": "Linux 6", "date": "2026-11-21"}}
        heading = report.heading_json("vdot", facts, [System("psum", "psum", "LibTorch 1.13.0", True, None)],
                                      [{"name": "jax", "reason": "there is none"}])
        self.assertEqual(report.heading_text(heading), """\
A CPU, 2 cores, 8.00 GiB, Linux 6, 2026-11-21
psum: LibTorch 1.13.0
The machine was busy before this began (load average 3.84): expect noise.
jax is left out: there is none

""")


REPLICA = """
import os, sys, time
rank, folder, way = int(sys.argv[1]), *sys.argv[2:]
answers = os.open(folder + "/answers", os.O_WRONLY)
def answer(text):
    os.write(answers, f"{rank} {text}\\n".encode())
answer("hello")
for line in open(f"{folder}/commands.{rank}"):
    verb, *words = line.split()
    if verb == "prepare":
        answer("prepared a note")
    elif rank == 1 and way == "dies":
        print("why it dies")
        sys.exit(7)
    elif rank == 1 and way == "hangs":
        time.sleep(60)
    elif rank == 1 and way == "babbles":
        answer("what")
    elif verb == "memory":
        answer(f"memory {5 if way == 'threads' else 5 + rank} {10 + rank} 20")
    else:
        calls = int(words[0])
        begin = 10**9
        answer(f"ran {begin + rank * 1000} {begin + calls * 1_000_000} {calls * (1 + rank)} {2 * calls}")
"""


class Protocol(unittest.TestCase):
    def crew(self, place, way="", replicas=2):
        system = System("fake", "a fake", "", True, lambda count, folder: [
            Program([sys.executable, "-c", REPLICA, str(rank), folder, way]) for rank in range(count)])
        return crew.Crew(place, [system], replicas)

    def test_a_sample_is_from_the_first_begin_to_the_last_end(self):
        with crew.Workplace() as place, self.crew(place) as all_of_it:
            (found,) = crew.measure(all_of_it, "work", 8, 3)
            self.assertEqual((found.calls, found.note, len(found.samples)), (3, "a note", 3))  # 3 ms at 1 ms a call
            for sample in found.samples:
                self.assertAlmostEqual(sample, MS)
            self.assertEqual(found.parts, [1.5, 2])
            self.assertEqual(all_of_it.members[0].run(1).largest, [2, 2])
            self.assertEqual(all_of_it.members[0].memory(), {"peak_bytes": 11 << 10, "host_bytes": 40 << 10})
        self.assertFalse(os.path.exists(place.folder))

    def test_pages_of_a_process_count_once(self):
        with crew.Workplace() as place, self.crew(place, "threads") as all_of_it:
            self.assertEqual(all_of_it.members[0].memory()["host_bytes"], 20 << 10)

    def test_a_replica_that_dies_hangs_or_babbles_ends_the_measurement_with_its_name(self):
        for way, message in {
            "dies": r"a fake, 2 replicas: process \d+ ended with status 7; the last that it printed:\n  why it dies$",
            "hangs": "a fake, 2 replicas: has not answered for 1 seconds; it printed nothing$",
            "babbles": "a fake, 2 replicas: has answered '1 what', not ran; it printed nothing$",
        }.items():
            with self.subTest(way), mock.patch.object(crew, "SILENCE", 1), crew.Workplace() as place:
                with self.assertRaisesRegex(texts.Failed, message), self.crew(place, way) as all_of_it:
                    crew.measure(all_of_it, "work", 8, 1)
                self.assertEqual(list(crew.children()), [])

    def test_what_cannot_be_run_is_said(self):
        missing = System("fake", "a fake", "", True, lambda count, folder: [Program(["/nowhere/program"])])
        with crew.Workplace() as place:
            with self.assertRaisesRegex(texts.Failed, "a fake, 1 replica: cannot run /nowhere/program: No such file"):
                crew.Crew(place, [missing], 1).__enter__()
            self.assertEqual(crew.run(Program(["/nowhere/program"])).last_line, "cannot run /nowhere/program: No such file or "
                             "directory")
            self.assertEqual(crew.run(Program(["/bin/sh", "-c", "echo one; echo two; exit 3"])), (3, "one\ntwo\n", "two"))
            with mock.patch.object(crew, "SILENCE", 1):
                begin = time.monotonic()
                self.assertEqual(crew.run(Program(["/bin/sleep", "60"])).last_line, "it has not ended in time")
                self.assertLess(time.monotonic() - begin, 30)

    def test_a_signal_is_no_failure_of_what_it_interrupts(self):
        with mock.patch.object(crew.subprocess, "Popen", side_effect=crew.Stopped(15)):
            with self.assertRaises(crew.Stopped):
                crew.run(Program(["/bin/true"]))
            with crew.Workplace() as place, self.assertRaises(crew.Stopped):
                self.crew(place).__enter__()

    def test_systems_begin_in_turn(self):
        one = crew.Crew(None, [], 1)
        one.members = ["a", "b", "c"]
        self.assertEqual("".join(one.turns(range(3))), "abcbcacab")


if __name__ == "__main__":
    unittest.main()
