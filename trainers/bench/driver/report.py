"""Reports: figures that are computed from measurements, in JSON, and tables of that JSON. Times are in seconds, rates in
bytes a second."""

from statistics import median

from flags import AUGMENTED
from texts import counted, digits_text, percent, quartiles, size_text, spread_text, table_text, time_text

PARTS = ["data", "forward", "backward", "communication", "update"]  # of a training step
COMMUNICATION, UPDATE = 3, 4
COMPUTED = [1, 2, 4]  # that a replica has without others, too
BYTES_A_PARAMETER = 28  # of Adam: gradient, value and two moments read, all but the gradient written
CHECKPOINT_PARTS = ["save", "pause", "load", "save_memory", "load_memory"]
CHECKPOINT_LIMITS = ["write", "read", "copy", "checksum"]
RELOAD_PARTS = ["load", "load_memory", "held", "predicted"]


def shown(name, value):
    """A value of JSON as tables have it: its name says the unit, unless quartiles stand beside theirs."""
    if isinstance(value, dict):
        return shown("bytes", value["median"]) if value.get("unit") == "B" else spread_text(value)
    if name.endswith("bytes_per_second"):
        return digits_text(value * 1e-9)
    if name.endswith("bytes"):
        return digits_text(value / (1 << 20))
    if name.endswith("seconds") or name in PARTS:
        return digits_text(value * 1e3)
    return value if isinstance(value, str) else percent(value) if "share" in name else digits_text(value)


def table(rows, **columns):
    """A line for each of JSON's objects: `columns` are the titles of what they have, or may have, by its name."""
    cells = [[shown(name, row[name]) if name in row else "" for name in columns] for row in rows]
    return table_text([[*columns.values()], *cells])


def ratio_text(samples, others):
    """The median over the turns, in each of which both had a batch."""
    return digits_text(median(mine / its for mine, its in zip(samples, others)))


def times_faster(own, peer):
    return ratio_text(peer["samples"], own["samples"])


def versus(rows, title="times as fast as", cell=times_faster):
    """A line a peer, a column one of ours, `cell` of both; "" without the one or the other."""
    ours, peers = ([row for row in rows if row["own"] is own and "reference" not in row] for own in (True, False))
    lines = [[peer["system"], *(cell(own, peer) for own in ours)] for peer in peers]
    return table_text([[title, *(own["system"] for own in ours)], *lines]) if ours and peers else ""


def notes_text(rows):
    text = "".join(f"{row['system']}: {row['note']}\n" for row in rows if "note" in row)
    return text and text + "\n"


def network_text(network):
    """ on 2 hosts, 1000 Mbit/s, 5 ms away"""
    rate = f"{network['mbit_per_second']} Mbit/s" if network["mbit_per_second"] else "any rate"
    return f" on {network['hosts']} hosts, {rate}" + (f", {network['delay_ms']:g} ms away" if network["delay_ms"] else "")


def measurement_json(measurement, **more):
    json = {"system": measurement.system.label, "own": measurement.system.own, "seconds": quartiles(measurement.samples),
            "calls_per_sample": measurement.calls, "samples": measurement.samples, "note": measurement.note, **more}
    return {name: value for name, value in json.items() if value != ""}


# The beginning of every report.

def heading_json(measurement, facts, systems, left_out):
    return {"measurement": measurement, "lockstep": facts["lockstep"], "machine": facts["machine"], "dtype": "float32",
            "systems": [{"label": system.label, "version": system.version, "own": system.own} for system in systems],
            "left_out": left_out}


def heading_text(heading):
    machine = heading["machine"]
    facts = [machine["cpu"], machine["instructions"], counted(machine["cores"], "core"),
             f"{digits_text(machine['memory_bytes'] / (1 << 30))} GiB", machine["kernel"], machine["date"]]
    lines = [", ".join(filter(None, facts))] + [f"{system['label']}: {system['version']}" for system in heading["systems"]]
    if machine["load"] > 0.5:
        lines.append(f"The machine was busy before this began (load average {digits_text(machine['load'])}): expect noise.")
    return "\n".join(lines + [f"{left['name']} is left out: {left['reason']}" for left in heading["left_out"]]) + "\n\n"


# Collectives.

def usable_size(operation, replicas, size):
    """The smallest possible size of at least so many bytes: operations that cut the buffer need whole floats a replica."""
    step = 4 * (1 if operation == "all_reduce" else replicas)
    return -(-size // step) * step


def bus_bytes(operation, replicas, size):
    """The bytes that cross between replicas in the best algorithm, as NCCL's tests count them."""
    return (2 if operation == "all_reduce" else 1) * (replicas - 1) / replicas * size


def moved_bytes(operation, replicas, size):
    """The bytes that memory must read and write for all replicas, if buffers are shared and none is in a cache."""
    return size * {"all_reduce": 2 * replicas, "reduce_scatter": replicas + 1, "all_gather": 2 * (replicas - 1)}[operation]


def operation_json(operation, replicas, limit, network, sizes, notes):
    """`sizes` are pairs of bytes and measurements. On several hosts each of them sends, and its replicas do not matter."""
    on_hosts = network["hosts"] > 1

    def measured(size, each):
        seconds, moved = median(each.samples), moved_bytes(operation, replicas, size)
        more = {"bus_bytes_per_second": bus_bytes(operation, network["hosts"] if on_hosts else replicas, size) / seconds}
        if on_hosts:
            more["sent_bytes"] = median(each.sent)
        elif each.system.own:
            more["share_of_limit"] = moved / seconds / limit["bytes_per_second"]
        return measurement_json(each, **more)

    return {"operation": operation, "replicas": replicas, **({"network": network} if on_hosts else {"limit": limit}),
            "sizes": [{"bytes": size, "moved_bytes": moved_bytes(operation, replicas, size),
                       "measurements": [measured(size, each) for each in measurements]} for size, measurements in sizes],
            "notes": notes}


def operation_text(result):
    sizes, limit = result["sizes"], result.get("limit")
    text = f"== {result['operation']}, {counted(result['replicas'], 'replica')}"
    first = sizes[0]["measurements"] if sizes else []
    ours, peers = ([number for number, row in enumerate(first) if row["own"] is own] for own in (True, False))
    pairs = [(own, peer) for own in ours for peer in peers]

    def by_size(heads, cells):
        return table_text([*heads, *([size_text(size["bytes"]), *cells(size["measurements"])] for size in sizes)])

    def figures(title, name, factor=1):
        def cells(rows):
            return ["" if name not in row else shown(name, row[name]) if factor == 1 else digits_text(row[name] * factor)
                    for row in rows]
        return by_size([[title, *(row["system"] for row in first)]], cells)

    if limit:
        text += (f"; limit: {shown('bytes_per_second', limit['bytes_per_second'])} GB/s read and written by "
                 f"{counted(limit['threads'], 'thread')}, {limit['how']}\n\n{figures('time a call', 'seconds')}"
                 f"{figures('bus GB/s', 'bus_bytes_per_second')}{figures('of limit', 'share_of_limit')}")
    else:
        text += (f"{network_text(result['network'])}\n\n{figures('time a call', 'seconds')}"
                 f"{figures('bus Mbit/s', 'bus_bytes_per_second', 8e-6)}{figures('MiB sent by a host', 'sent_bytes')}")
    if pairs:
        text += by_size([["times as fast", *(first[own]["system"] for own, _ in pairs)],
                         ["as", *(first[peer]["system"] for _, peer in pairs)]],
                        lambda rows: [times_faster(rows[own], rows[peer]) for own, peer in pairs])
    return text + "".join(f"{note}\n" for note in result["notes"]) + "\n" * bool(result["notes"])


# Training.

def training_json(model, parameters, replicas, batch, limit, network, measurements):
    """One model on one number of replicas. `parameters` are the numbers of values of each."""
    named = {each.system.label: each for each in measurements}
    alone, hosts, floor = named.get("alone"), network["hosts"], None
    cable = 1e6 / 8 * network["mbit_per_second"] * (hosts > 1)  # of a host, in bytes a second
    if alone:  # The least time of a step: forward and backward as "alone" takes them, and the update at the memory's speed.
        compute, update = sum(alone.parts[1:3]), BYTES_A_PARAMETER * sum(parameters) / limit["bytes_per_second"]
        floor = {"seconds": compute + update, "forward_and_backward": compute, "update": update}

    def bound(label):
        """The least time of a step of a system on several hosts, without headers. A host sends its part, (H-1)/H, of all
        gradients for an all-reduce twice, each time after they are ready; of stage 1 and later once (reduce-scatter), and beside
        other parts of the step the parameters once more, of stage 3 twice."""
        if not alone or not cable or label.startswith("plain"):
            return {}
        once_ready = 1 if label.startswith(("stage 1", "stage 2", "stage 3", "fsdp")) else 2
        in_all = 3 if label.startswith(("stage 3", "fsdp", "zero")) else 2
        part = 4 * (hosts - 1) / hosts / cable  # seconds a value
        least, values = max(floor["seconds"], in_all * part * sum(parameters)), 0
        for ready, count in sorted(zip(alone.parts[len(PARTS):], parameters), reverse=True):
            values += count
            least = max(least, ready + once_ready * part * values + 1e-3 * network["delay_ms"])
        return {"bound_seconds": least}

    def exposed_parts(each):
        """Forward, backward and update are what they take alone (a peer's: in its version's plain loop), and the rest of the step
        is communication: a median over the turns in which both ran. Without that, as the replicas measured them."""
        system, parts = each.system, each.parts[:len(PARTS)]
        by_itself = alone if system.own else named.get("plain" + system.label[len(system.name):])
        if each is alone or not by_itself:
            return parts
        shares = dict.fromkeys(COMPUTED, 1)
        if system.name in ("zero", "fsdp"):
            shares[UPDATE] = 1 / replicas  # of the parameters, which a replica updates
        parts[COMMUNICATION] = median(turn[COMMUNICATION] + sum(turn[part] - shares[part] * own[part] for part in COMPUTED)
                                      for turn, own in zip(each.turns, by_itself.turns))
        for part in COMPUTED:
            parts[part] = shares[part] * by_itself.parts[part]
        return parts

    def note(each):
        plain = named.get(each.system.label.replace(f" {AUGMENTED}", ""))
        if plain in (None, each):
            return each.note
        return f"{ratio_text(each.samples, plain.samples)} times as long as {plain.system.label}"  # on images as they are

    def step(each):
        seconds, exposed, ready = median(each.samples), exposed_parts(each), each.parts[len(PARTS):]
        more = {"steps_per_second": 1 / seconds, "measured_parts": dict(zip(PARTS, each.parts)),
                "exposed_parts": dict(zip(PARTS, exposed)), **each.memory}
        more |= {"note": note(each), **({"gradients_ready": ready} if ready else {})}
        if hosts > 1:
            more["sent_bytes"] = median(each.sent)
        if cable:  # of the cable for these bytes, and of that beside other parts of the step
            sending = more["sent_bytes"] / cable
            more |= {"cable_seconds": sending, "hidden_seconds": min(max(sending - exposed[COMMUNICATION], 0), sending)}
        if each is alone:
            return measurement_json(each, **more, reference=True)
        if floor:
            more["share_of_floor"] = floor["seconds"] / seconds
        if least := bound(each.system.label):
            more |= {**least, "times_of_bound": seconds / least["bound_seconds"]}
        return measurement_json(each, **more)

    return {"model": model, "parameters": sum(parameters), "replicas": replicas, "batch": batch, "limit": limit,
            **({"floor": floor} if floor else {}), **({"network": network} if hosts > 1 else {}), **bound("stage 0"),
            "measurements": [step(each) for each in measurements]}


def exposed_ratio(own, peer):
    """The exposed communication of one system in percent of a peer's; "" where the peer has none."""
    ours, theirs = (max(row["exposed_parts"]["communication"], 0) for row in (own, peer))
    return percent(ours / theirs) if theirs else ""


def training_text(result):
    rows, floor, network = result["measurements"], result.get("floor"), result.get("network")
    text = (f"== {result['model']}, {counted(result['parameters'], 'parameter')}, {counted(result['replicas'], 'replica')} of "
            f"{counted(result['batch'], 'sample')}{network_text(network) if network else ''}")
    if floor:
        text += (f"; floor {time_text(floor['seconds'])}: {time_text(floor['forward_and_backward'])} forward and backward, "
                 f"{time_text(floor['update'])} update at {shown('bytes_per_second', result['limit']['bytes_per_second'])} GB/s")
    text += f"; bound {time_text(result['bound_seconds'])}" if "bound_seconds" in result else ""
    last = {"sent_bytes": "sent MiB", "cable_seconds": "on cable", "hidden_seconds": "hidden", "bound_seconds": "bound",
            "times_of_bound": "x bound"} if network else {
                "share_of_floor": "of floor", "peak_bytes": "peak MiB", "host_bytes": "host MiB"}
    text += "\n\n" + table([{**row, **row["exposed_parts"]} for row in rows], system="", seconds="a step",
                           steps_per_second="steps/s", **dict(zip(PARTS, PARTS)), **last)
    text += versus(rows) + (versus(rows, "exposed, of that of", exposed_ratio) if result["replicas"] > 1 else "")
    return text + notes_text(rows)


def launches_text(replicas, rows):
    return (f"== launch to first step, pmean_linear, {replicas} processes\n\n{table(rows, system='', seconds='time')}"
            f"{versus(rows)}")


def growth_text(rows):
    """The rows are of one model and number of replicas."""
    more = [{**row, "more_bytes": row["host_bytes"] - row["first_bytes"]} for row in rows]
    return (f"== memory over steps, {rows[0]['model']}, {counted(rows[0]['replicas'], 'replica')}\n\n" + table(
        more, system="", first_bytes="MiB after a step", host_bytes=f"after {rows[0]['steps']}", more_bytes="more"))


def scaling_text(model, rows, network, cores):
    hosts, lines = sorted({row["hosts"] for row in rows}), []
    for name, what, show in (("seconds", "a step", spread_text),
                             ("efficiency", "efficiency", lambda share: percent(share["median"]))):
        for system in dict.fromkeys(row["system"] for row in rows):
            lines.append([f"{system}, {what}", *(show(row[name]) for row in rows if row["system"] == system)])
    rate = network_text(network).partition(", ")[2]
    return (f"== scaling, {model}, a replica a host of {cores:g} cores, {rate}\n\n"
            + table_text([["hosts", *map(str, hosts)], *lines]))


# Checkpoints.

def parts_json(names, measurement, replicas):
    """Parts whose name has no memory in it are seconds, the others bytes."""
    json = {"system": measurement.system.label, "own": measurement.system.own, "replicas": replicas}
    for name, samples in zip(names, zip(*measurement.largest)):
        is_bytes = name.endswith("memory") or name in ("held", "predicted")
        json[name] = {**quartiles(samples), "unit": "B" if is_bytes else "s", "samples": samples}
    return {**json, "note": measurement.note} if measurement.note else json


def checkpoint_json(folder, file_system, size, replicas, limits, measurements, reloads):
    """`size` are the bytes of all replicas."""
    limits = parts_json(CHECKPOINT_LIMITS, limits, replicas)
    least = max(limits["write"]["median"], limits["checksum"]["median"])
    found = [parts_json(CHECKPOINT_PARTS, each, replicas) for each in measurements]
    for json in found:
        save, pause, load = (json[part]["median"] for part in CHECKPOINT_PARTS[:3])
        json |= {"share_of_limit": least / save, "pause_share": pause / save, "saved_bytes_per_second": size / save,
                 "loaded_bytes_per_second": size / load}
    loaded = [parts_json(RELOAD_PARTS, each, count) for count, each in reloads]
    for json in loaded:
        json["share_of_held"] = json["load_memory"]["median"] / (json["held"]["median"] or 1)
    return {"folder": folder, "file_system": file_system, "replicas": replicas, "limits": limits, "measurements": found,
            "reloads": loaded}


def checkpoint_text(parameters, size, result):
    found, loaded = result["measurements"], result["reloads"]
    limits = ", ".join(f"{name} {digits_text(1e-9 * size / result['limits'][name]['median'])}" for name in CHECKPOINT_LIMITS)
    text = (f"== {digits_text(1e-9 * size)} GB, {counted(parameters, 'parameter')} with Adam's state, of "
            f"{counted(result['replicas'], 'replica')}, in {result['folder']}, {result['file_system']}; limits in GB/s: {limits}"
            "\n\n")
    text += table(found, system="", save="save", saved_bytes_per_second="GB/s", share_of_limit="of limit", pause="pause",
                  pause_share="of save", load="load", loaded_bytes_per_second="GB/s", save_memory="save MiB",
                  load_memory="load MiB")
    for part in CHECKPOINT_PARTS[:3]:
        text += versus(found, f"{part}: times as fast as", lambda own, peer, part=part: digits_text(
            peer[part]["median"] / own[part]["median"]))
    rows = [{**each, "system": f"{counted(each['replicas'], 'replica')}, {each['system']}"} for each in loaded]
    return text + (table(rows, system="loaded by", load="time", held="holds MiB", predicted="predicted", load_memory="more MiB",
                         share_of_held="of it") if rows else "") + notes_text(found)


# Single parts, each beside what it is compared with: the first measurement is the part's.

def part_json(name, what, measurements, unit="", amount=1, **more):
    return {"name": name, "what": what, "unit": unit, "amount": amount, **more,
            "measurements": list(map(measurement_json, measurements))}


def part_text(result):
    first, first_label = result["measurements"][0], result["measurements"][0]["system"]
    rows = [{**row, "of_unit": {name: value / result["amount"] for name, value in row["seconds"].items()},
             "times": row["seconds"]["median"] / first["seconds"]["median"]} for row in result["measurements"]]
    time = f"time a {result['unit']}" if result["unit"] else "time"
    return (f"== {result['name']}: {result['what']}\n\n"
            f"{table(rows, system='', of_unit=time, times=f'x {first_label}')}{notes_text(rows)}")
