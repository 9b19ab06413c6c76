"""The measurements of bench: a function a command, which adds its results and returns the rest of its report in JSON."""

import os
import random
import shutil
import tempfile
from statistics import median

import report
import systems
from crew import Crew, Measurement, Program, measure, measure_launches, run
from flags import AUGMENTED
from report import measurement_json, part_json, part_text
from systems import Hosts, ask_worker, changed, find_systems, own, peers, train_system
from texts import counted, digits_text, quartiles, size_text

STATE_BYTES = 12  # of a parameter in float32 with Adam's two moments
ONE_STEP = "optimizer: {name: sgd, lr: 0.01}\ntrainer: {steps: 1}\nmodel: {name: linear}\n"
PMEAN_EXAMPLE = ONE_STEP + "data: {name: pmean_example, batch_size: 4, shuffle: false}\n"
PMEAN_REPLICAS, PMEAN_RESULT = 4, "w = 2.625"
TABLE_ROWS, FEW_COLUMNS = 500, 4
SCALING_HOSTS = [1, 2, 4, 8]


class Bench:
    """A measurement that is under way; the worker tells its `facts`, of the machine and of itself."""

    def __init__(self, place, options, show, print_result):
        self.place, self.options, self.show, self.print, self.results = place, options, show, print_result, []
        trains, parts = options.measurement == "training", "replicated" in options.measure
        asked = options.replicas if options.measurement == "collectives" or "steps" in options.measure else [2] * parts
        self.facts = ask_worker("facts", *asked, *options.models * trains)
        self.limits = self.facts["limits"]  # the memory's, by the number of replicas that copy at once
        self.libtorch = self.facts["libtorch"]
        self.with_blas = f"{self.libtorch}, {self.facts['blas']}"
        self.cores = self.facts["machine"]["cores"]

    def begin(self, own_systems, names=()):
        """The systems that are measured. Prints the beginning of the report."""
        found, left_out = find_systems(self.options, own_systems, names)
        self.heading(found, left_out)
        return found

    def heading(self, found, left_out):
        self.head = report.heading_json(self.options.measurement, self.facts, found, left_out)
        self.print(report.heading_text(self.head))

    def add(self, result, text):
        self.results.append(result)
        self.print(text)

    def part(self, crew, name, what, amount, unit="", units=1, repetitions=None, **pace):
        self.show(name)
        measurements = measure(crew, name, amount, repetitions or self.options.repetitions, **pace)
        result = part_json(name, what, measurements, unit, units)
        self.add(result, part_text(result))
        return measurements

    def batch(self, model):
        return self.options.batch or (8 if model == "gpt" else 64)


def collectives(bench):
    options, on_hosts = bench.options, bench.options.hosts > 1
    names = ["c10d"] if on_hosts else ["c10d", "openmpi", "jax"]
    found = bench.begin(systems.collective_systems(options, bench.libtorch), names)
    with Hosts(bench.place, options, options.hosts) as hosts:
        for replicas in options.replicas:
            bench.show(f"starting {counted(len(found), 'system')} of {counted(replicas, 'replica')}")
            with Crew(bench.place, hosts.spread(found), replicas) as crew:
                for operation in options.operations:
                    sizes, notes = [], {}
                    for size in dict.fromkeys(report.usable_size(operation, replicas, size) for size in options.sizes):
                        bench.show(f"{operation}, {counted(replicas, 'replica')}, {size_text(size)}")
                        # Input, output and what a system may need on top: all replicas of all systems hold theirs.
                        needed, free = len(found) * replicas * size * 5 // 2, bench.facts["free_bytes"]
                        if needed > free:
                            notes[f"{size_text(size)} is left out: the buffers of all systems take up to {needed >> 20} MiB, "
                                  f"and {free >> 20} MiB are free; --systems picks fewer"] = True
                            continue
                        sizes.append((size, measure(crew, operation, size, options.repetitions, sent_bytes=hosts.sent_bytes)))
                        notes |= {f"{each.system.label}: {each.note}": True for each in sizes[-1][1] if each.note}
                    result = report.operation_json(operation, replicas, bench.limits[str(replicas)], hosts.network, sizes,
                                                   list(notes))
                    bench.add(result, report.operation_text(result))
    return {}


def vdot(bench):
    replicas, size = systems.VDOT_REPLICAS, systems.VDOT_BYTES
    found = bench.begin(systems.vdot_systems(bench.with_blas), ["jax"])
    with Crew(bench.place, found, replicas) as crew:
        measurements = bench.part(crew, "vdot", f"the dot product of two arrays of {size >> 20} MiB", size, "GB", 2e-9 * size)
    return {"replicas": replicas, "bytes": size, "measurements": list(map(measurement_json, measurements))}


def vmap(bench):
    found = bench.begin([own("vmap", "lockstep", "vmap", bench.libtorch, one_controller=True)], ["jax", "torch.func"])
    for operation, what in (("lanes", "tanh of a matrix of 64 x 64 times the lane's vector"),
                            ("psum", "the same, less its sum over the lanes by psum")):
        able = [system for system in found if operation == "lanes" or system.name != "torch.func"]  # it has no collectives
        with Crew(bench.place, able, 1) as crew:
            for lanes in bench.options.lanes if able else []:
                bench.part(crew, operation, f"{what}, {counted(lanes, 'lane')}", lanes, "lane", lanes)
                bench.results[-1]["lanes"] = lanes
    return {}


def training(bench):
    options, growths, launches = bench.options, [], []
    lockstep = systems.training_systems(options, bench.with_blas) + [train_system(PMEAN_EXAMPLE, bench.libtorch)]
    names = ["plain", "ddp", "zero", "fsdp"] + ["torchrun"] * (options.hosts == 1)
    found, left_out = find_systems(options, lockstep, names)
    launched = [each for each in found if each.label == "train" or each.name == "torchrun"]
    trained = [each for each in found if each not in launched] if {"steps", "memory"} & set(options.measure) else []
    launched = launched if "launches" in options.measure else []
    bench.heading(trained + launched, left_out)
    with Hosts(bench.place, options, options.hosts) as hosts:
        for model, replicas in ((model, replicas) for model in options.models for replicas in options.replicas):
            # Without others there is nothing to average, and only images are augmented.
            able = hosts.spread([each for each in trained if (replicas > 1 or each.name not in ("ddp", "zero", "fsdp")) and
                                 (model != "gpt" or AUGMENTED not in each.label)])
            bench.show(f"{model}: {counted(len(able), 'system')} of {counted(replicas, 'replica')}")
            if able and "steps" in options.measure:
                result = measure_steps(bench, able, model, replicas, hosts)
                bench.add(result, report.training_text(result))
            if able and "memory" in options.measure:
                growths += [measure_growth(bench, each, model, replicas) for each in able]
                bench.print(report.growth_text(growths[-len(able):]))
    if launched:
        launches = list(map(measurement_json, measure_launches(bench.place, launched, PMEAN_REPLICAS, PMEAN_RESULT,
                                                               options.few_repetitions, bench.show)))
        bench.print(report.launches_text(PMEAN_REPLICAS, launches))
    return {"optimizer": "adam", "launches": {"replicas": PMEAN_REPLICAS, "measurements": launches},
            **({"memory": growths} if growths else {})}


def measure_steps(bench, found, model, replicas, hosts):
    limit, batch = bench.limits[str(replicas)], bench.batch(model)
    with Crew(bench.place, found, replicas) as crew:  # of its own, so that peaks of memory are this case's
        measurements = measure(crew, model, batch, bench.options.repetitions, 0.06, 20, 7, sent_bytes=hosts.sent_bytes)
        for member, measurement in zip(crew.members, measurements):
            measurement.memory = member.memory()
    return report.training_json(model, bench.facts["parameters"][model], replicas, batch, limit, hosts.network, measurements)


def measure_growth(bench, system, model, replicas):
    """A system alone: memory after the first step, and after all."""
    steps, at_once = bench.options.steps, 50  # an answer may take two minutes
    with Crew(bench.place, [system], replicas) as crew:
        (member,) = crew.members
        member.prepare(model, bench.batch(model))
        member.run(1)
        first = member.memory()["host_bytes"]
        for done in range(1, steps, at_once):
            member.run(min(steps - done, at_once))
        return {"model": model, "replicas": replicas, "steps": steps, "system": system.label, "first_bytes": first,
                "host_bytes": member.memory()["host_bytes"]}


def scaling(bench):
    options = bench.options
    found = bench.begin(systems.training_systems(options, bench.with_blas)[1:], ["ddp"])  # without "alone"
    cores = min(1, bench.cores / SCALING_HOSTS[-1])  # a host's, however many hosts there are
    for model in options.models:
        rows, alone = [], {}
        for count in SCALING_HOSTS:
            bench.show(f"{model} on {counted(count, 'host')}")
            with Hosts(bench.place, options, count, cores) as hosts, Crew(bench.place, hosts.spread(found), count) as crew:
                for each in measure(crew, model, bench.batch(model), options.repetitions, 0.06, 20, 7):
                    one = alone.setdefault(each.system.label, median(each.samples))
                    rows.append({"hosts": count, "system": each.system.label, "own": each.system.own,
                                 "seconds": quartiles(each.samples), "samples": each.samples,
                                 "efficiency": quartiles([one / sample for sample in each.samples])})
        bench.add({"model": model, "network": hosts.network, "measurements": rows},
                  report.scaling_text(model, rows, hosts.network, cores))
    return {"cores_a_host": cores}


def checkpoint(bench):
    options, size = bench.options, STATE_BYTES * bench.options.parameters
    found = bench.begin([own("checkpoint", "lockstep", "stage 2", bench.libtorch)], ["dcp", "dcp_async", "torch_save"])
    folders = options.folders or [tempfile.gettempdir()] + ["/dev/shm"] * os.path.isdir("/dev/shm")
    for folder, replicas in ((folder, replicas) for folder in folders for replicas in options.replicas):
        bench.show(f"checkpoints of {counted(replicas, 'replica')} in {folder}")
        check_room(bench, folder, len(found) + 1)
        place = bench.place.new_folder(folder)
        limits = own("checkpoint", "limits", "limits", "")
        with Crew(bench.place, [saving_in(f"{place}/{each.label}", each) for each in [*found, limits]], replicas) as crew:
            *measurements, limits = measure(crew, "save", options.parameters, options.few_repetitions, batch_seconds=0)
        reloads = reload(bench, f"{place}/stage 2", replicas) if found[0].own else []
        shutil.rmtree(place)
        file_system = run(Program(["df", "--output=fstype", folder])).last_line
        result = report.checkpoint_json(folder, file_system, size, replicas, limits, measurements, reloads)
        bench.add(result, report.checkpoint_text(options.parameters, size, result))
    return {"optimizer": "adam", "parameters": options.parameters, "bytes": size}


def saving_in(folder, system):
    os.makedirs(folder, exist_ok=True)
    return changed(system, lambda programs: [each._replace(environment={**each.environment, "LOCKSTEP_BENCH_FOLDER": folder})
                                             for each in programs])


def check_room(bench, folder, count):
    # A system has its state, and copies of it while it is made or saved: 24 bytes a parameter on average.
    needed, free = count * 24 * bench.options.parameters >> 20, bench.facts["free_bytes"] >> 20
    files, room = 3 * STATE_BYTES * bench.options.parameters >> 20, shutil.disk_usage(folder).free >> 20
    if needed > free:
        raise RuntimeError(f"{counted(count, 'system')} take up to {needed} MiB, and {free} MiB are free; --systems picks "
                           "fewer, --parameters a smaller model")
    if files > room:
        raise RuntimeError(f"{folder} has room for {room} MiB, and checkpoints take up to {files} MiB")


def reload(bench, folder, replicas):
    """Others load what Lockstep has saved last: twice as many replicas at stage 3, which save it again, as many at stage 0,
    which save it, too, and one replica."""
    found = []
    for count, stage in (2 * replicas, 3), (2 * replicas, 0), (1, 0):
        system = own("checkpoint", "lockstep", f"stage {stage}", bench.libtorch)
        with Crew(bench.place, [saving_in(folder, system)], count) as crew:
            (member,) = crew.members
            member.prepare("reload", bench.options.parameters)
            found.append((count, Measurement(system, largest=[member.run(1).largest])))
    return found


def parts(bench):
    readers, left_out = [], []
    if "table" in bench.options.measure:
        for name in ("pandas", "loadtxt"):
            if not readers:
                readers, missing = peers(name, bench.options.python)
                left_out += missing
    checked = own("replicated", "shard_map", "shard_map", bench.libtorch, one_controller=True)
    shown = {"table": [train_system("", bench.libtorch), *readers], "replicated": [checked]}
    bench.heading([system for part in bench.options.measure for system in shown[part]], left_out)
    for part in bench.options.measure:
        bench.show(part)
        result = measure_table(bench, readers) if part == "table" else measure_replicated(bench, checked)
        bench.add(result, part_text(result))
    return {}


def measure_table(bench, readers):
    found, sizes = [], []
    for columns in bench.options.columns, FEW_COLUMNS:
        table = f"{bench.place.folder}/{columns}.csv"
        with open(table, "w") as file:  # numbers between -1 and 1 with 5 decimals, below the columns' names
            file.write(",".join(f"c{i}" for i in range(columns)) + "\n")
            draw = random.Random(0).random
            for _ in range(TABLE_ROWS):
                file.write(",".join([f"{2 * draw() - 1:.5f}" for _ in range(columns)]) + "\n")
        sizes.append(os.path.getsize(table))
        train = train_system(f"{ONE_STEP}data: {{name: csv, file: \"{table}\", target: c{columns - 1}, batch_size: 32}}\n",
                             bench.libtorch)
        their = [changed(each, lambda programs, table=table: [Program([*programs[0].words[:3], table])]) for each in readers]
        found += [each._replace(label=f"{each.label}, {counted(columns, 'column')}") for each in [train, *their]]
    what = (f"start of the program to the first step on a table of {TABLE_ROWS} rows in CSV; the wide one has "
            f"{sizes[0] >> 10} KiB")
    return part_json("table", what, measure_launches(bench.place, found, 1, f"{TABLE_ROWS} samples",
                                                     bench.options.few_repetitions, bench.show))


def measure_replicated(bench, checked):
    """A call with the check is compared with one without it, turn by turn."""
    replicas, size = 2, 64 << 20
    limit = bench.limits[str(replicas)]
    unchecked = own("replicated", "shard_map", "unchecked", "", one_controller=True)
    with Crew(bench.place, [checked, unchecked], replicas) as crew:
        one, other = measure(crew, "replicated", size, bench.options.repetitions)
    check = Measurement(checked._replace(label="check"), [mine - its for mine, its in zip(one.samples, other.samples)])
    read = Measurement(checked._replace(label="memory, read once", own=False), [replicas * size / limit["bytes_per_second"]])
    return part_json("replicated", f"shard_map's check of a result of {size_text(size)} on {replicas} replicas", [check, read],
                     "MiB", size >> 20)


def peak(bench):
    rows = 2048
    product = own("peak", "product", "float32", counted(bench.cores, "math thread"), one_controller=True)
    bench.heading([product._replace(label="product")], [])
    for kind in "float32", "bfloat16":
        way = own("peak", "product", kind, "", one_controller=True)
        with Crew(bench.place, [way._replace(label="product")], 1) as crew:
            (found,) = bench.part(crew, kind, f"a product of matrices of {rows} x {rows}", 0, "GFLOP", 2e-9 * rows**3,
                                  bench.options.few_repetitions, batch_seconds=0)
        fastest = 2 * rows**3 / min(found.samples)
        bench.print(f"The fastest has {digits_text(fastest * 1e-9)} GFLOP/s: part_of_peak in metrics is of these, kept in "
                    f"{ask_worker('keep', kind, fastest)}\n")
    return {}


def recorder(bench):
    found = [own("recorder", way, way, version, one_controller=True) for way, version in
             (("span", "in memory that replicas share"), ("clock", "read twice, as a span does"))]
    bench.heading(found, [])
    with Crew(bench.place, found, 1) as crew:
        bench.part(crew, "span", "a span that a replica records: where it begins and where it ends", 0)
    return {}
