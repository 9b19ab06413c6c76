#!/usr/bin/env python3
"""Keeps in FOLDER what fixed runs and programs of a build print and write, a file each, but for times, process ids, ports
and paths. A change that is to change nothing for users leaves the folder of the tree before it: diff -r tells.
  tests/outputs.py FOLDER [BUILD]     (BUILD: build/release, with `ninja train bench outputs`)
"""

import json
import os
import re
import socket
import struct
import subprocess
import sys
import tempfile
from pathlib import Path

SOURCE = Path(__file__).resolve().parent.parent
# Keys of JSON whose values are measured or name this machine.
MEASURED = {"time", "memory", "parts", "part_of_peak", "slow_replica", "slow_replica_share", "slow_link", "slow_link_share",
            "begun", "written", "pid", "host", "peak_bytes"}
MASKS = [
    (r"\x1b\[[0-9;]*[A-Za-z]|\r", ""), (r"/[\w./-]*/trainers/train\b", "train"),
    (re.escape(str(SOURCE)), "SOURCE"), (r"/tmp/[\w./-]*", "PATH"),
    (r"\b127\.0\.0\.1:\d+", "ADDRESS"), (r"\b(pid|process) \d+", r"\1 N"), (r"tfevents[\w.]*( \d+)?", "tfevents"),
    (r"\d{4}-\d\d-\d\d[T ]\d\d:\d\d(:\d\d)?(\.\d+)?Z?", "TIME"), (r"\b\d+:\d\d( left)?\b", "CLOCK"),
    (r"The machine was busy .*|links between hosts: .*|elapsed_s [\d.]+", ""), (r"(samples|tokens)/s( +[\d.]+)+", r"\1/s"),
    (r"[\d.]+ ?(%|samples/s|tokens/s|us|ms|s|min|h|hours|GFLOP/s|MiB|GiB|GB|MB|KB|kB|KiB)(?!\w)", r"N \1"),
    # Of several replicas that an error ends any may be the first.
    (r"replica \d+( \(pid|: psum|: pmax)", r"a replica\1"), (r" {2,}", "  ")]


def masked(text):
    for pattern, mark in MASKS:
        text = re.sub(pattern, mark, text)
    return text


def masked_line(line):
    """Metrics stand in lines of JSON."""
    return json.dumps(unmeasured(json.loads(line))) if line.strip().startswith(('{"', '[{"')) else masked(line)


def unmeasured(value):
    if isinstance(value, dict):
        return {key: unmeasured(each) for key, each in value.items() if key not in MEASURED and not key.endswith("_s")}
    if isinstance(value, list):
        return [unmeasured(each) for each in value]
    return masked(value) if isinstance(value, str) else value


def json_text(path):
    lines = path.read_text().splitlines() if path.suffix == ".jsonl" else [path.read_text()]
    return "".join(json.dumps(unmeasured(json.loads(line)), indent=1) + "\n" for line in lines)


def trace_text(path):
    """The names of spans, and the bytes that those of each name have moved."""
    sums = {}
    for event in json.loads(path.read_text())["traceEvents"]:
        if event["ph"] == "X":
            key = (event.get("cat", ""), re.sub(r":?\d+", "", event["name"]))
            sums[key] = sums.get(key, 0) + int(event["args"].get("bytes", 0))
    return "".join(f"{kind} {name}: {size} bytes\n" for (kind, name), size in sorted(sums.items()))


def tags_of(path):
    """The tags of an event file, and how many records have each."""
    data, offset, counts = path.read_bytes(), 0, {}
    while offset < len(data):
        (length,) = struct.unpack_from("<Q", data, offset)
        for tag in re.findall(rb"[ -~]{3,}", data[offset + 12:offset + 12 + length]):
            if re.fullmatch(rb"[a-z_]{3,}(/[\w-]{2,})+", tag):
                counts[tag.decode()] = counts.get(tag.decode(), 0) + 1
        offset += 16 + length
    return "".join(f"{tag}: {count}\n" for tag, count in sorted(counts.items()))


def free_port():
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return probe.getsockname()[1]


class Outputs:
    def __init__(self, folder, build):
        self.folder, self.build = Path(folder), Path(build).resolve()
        self.folder.mkdir(parents=True, exist_ok=True)
        for file in self.folder.iterdir():
            file.unlink()

    def keep(self, name, text):
        (self.folder / name).write_text(text)

    def run(self, name, *commands, program="trainers/train", change=lambda line: line):
        """What the commands print, and their statuses."""
        said = ""
        for words in commands:
            ended = subprocess.run([self.build / program, *map(str, words)], capture_output=True, text=True, errors="replace")
            said += f"$ {Path(program).name} {' '.join(map(str, words))}\n{ended.stdout}{ended.stderr}[{ended.returncode}]\n"
        self.keep(name, "\n".join(map(change, map(masked_line, said.splitlines()))) + "\n")

    def keep_run(self, name, run):
        """The files of a run's folder."""
        run = Path(run)
        names = sorted(masked(re.sub(r"tfevents.*", "tfevents", str(path.relative_to(run)))) for path in run.rglob("*"))
        self.keep(f"{name}.files", "\n".join(names) + "\n")
        for file in "result.json", "metrics.jsonl", "events.jsonl", "failure.json":
            if (run / file).exists():
                self.keep(f"{name}.{file}", json_text(run / file))
        if (run / "trace.json").exists():
            self.keep(f"{name}.trace", trace_text(run / "trace.json"))
        for file in run.glob("events.out*"):
            self.keep(f"{name}.tensorboard", tags_of(file))
        if (run / "report.html").exists():
            page = (run / "report.html").read_text()
            self.keep(f"{name}.report", masked("\n".join(re.findall(r"<h\d[^>]*>.*?</h\d>|<t[hd][^>]*>[^<]*", page))) + "\n")


def main():
    if len(sys.argv) not in (2, 3):
        sys.exit(__doc__)
    outputs = Outputs(sys.argv[1], sys.argv[2] if len(sys.argv) > 2 else SOURCE / "build/release")
    work = Path(tempfile.mkdtemp(prefix="lockstep-", dir="/tmp"))
    configs = SOURCE / "configs"
    linear = ["--config", configs / "pmean_linear.yaml"]
    mlp = ["--config", configs / "fashion_mnist_mlp.yaml", "--set", "trainer.steps=20", "--set", "trainer.log_every=5"]
    text = work / "text.txt"
    text.write_text("the quick brown fox jumps over the lazy dog. " * 200)
    gpt = ["--config", configs / "text_gpt.yaml"] + [word for key in (
        f"data.path={text}", "data.held_out=[]", "data.exclude=[]", f"data.test_path={SOURCE}/LICENSE", "data.batch_size=2",
        "model.layers=1", "model.width=32", "data.context=32", "trainer.steps=4", "schedule.warmup_steps=1")
        for word in ("--set", key)]
    watched = [word for key in ("telemetry.tensorboard=true", "telemetry.histograms=10", "telemetry.trace=[5, 8]",
                                "checkpoint.every=10", "checkpoint.best=loss", "trainer.eval_every=10", "trainer.accumulate=2",
                                "data.validation=0.05") for word in ("--set", key)]

    commands = ["run", "check", "summary", "plan", "keys", "eval", "predict", "sample", "export", "inspect", "report", "runs",
                "compare", "trace"]
    outputs.run("help", ["--help"], *([command, "--help"] for command in commands), ["keys"])
    outputs.run("bench_help", ["--help"], program="trainers/bench")
    outputs.run("linear", [*linear, "--output", work / "linear"])
    outputs.run("watched", [*mlp, *watched, "--replicas", 2, "--output", work / "watched"])
    outputs.run("stage3", [*mlp, "--replicas", 3, "--set", "parallel.zero_stage=3", "--output", work / "stage3"])
    outputs.run("threads", [*mlp, "--replicas", 4, "--workers", 2, "--launch", "threads", "--output", work / "threads"])
    outputs.run("gloo", [*mlp, "--replicas", 2, "--set", "parallel.backend=gloo", "--output", work / "gloo"])
    outputs.run("text", [*gpt, "--replicas", 2, "--output", work / "text"])
    secret = work / "secret"
    secret.write_text("7" * 64 + "\n")
    secret.chmod(0o600)
    hosts = [*mlp, "--replicas", 4, "--nnodes", 2, "--rendezvous", f"127.0.0.1:{free_port()}", "--secret-file", secret, "--set",
             "telemetry.trace=[5, 8]", "--output", work / "hosts"]
    with subprocess.Popen([outputs.build / "trainers/train", *map(str, hosts), "--node-rank", "1"], stdout=subprocess.DEVNULL,
                          stderr=subprocess.DEVNULL):
        outputs.run("hosts", [*hosts, "--node-rank", 0])
    for run in "linear", "watched", "stage3", "threads", "gloo", "text", "hosts":
        outputs.keep_run(run, work / run)

    latest = work / "watched/checkpoints/latest"
    outputs.run("eval", ["eval", "--checkpoint", latest])
    outputs.run("predict", ["predict", "--checkpoint", latest, "--split", "validation", "--output", work / "predicted.csv"])
    outputs.keep("predict.csv", "".join((work / "predicted.csv").read_text().splitlines(True)[:200]))
    outputs.run("export", ["export", "--checkpoint", latest, "--to", work / "w.safetensors"], ["inspect", latest],
                ["inspect", work / "watched"])
    outputs.run("weights", [work / "w.safetensors"], program="/usr/bin/sha256sum")
    outputs.run("sample", ["sample", "--checkpoint", work / "text/checkpoints/latest", "--prompt", "the quick", "--bytes", 40])
    outputs.run("runs", ["runs", work, "--format", "json"])
    outputs.run("compare", ["compare", work / "watched", work / "stage3"], ["report", work / "stage3"])
    outputs.run("trace_summary", ["trace", "--summary", work / "watched"], ["trace", "--summary", work / "hosts"],
                change=lambda line: re.sub(r"\d+\.\d+(e[+-]\d+)?|^Replica .*|^With the pace .*| for replica .*", "N", line))
    outputs.run("summary", ["summary", *mlp], ["check", *mlp], [*mlp, "--dry-run", "--replicas", 2],
                ["plan", *mlp, "--link", "1Gbit/s", "--hosts", "1,2"])
    outputs.run("memory", ["training", "--measure", "memory", "--models", "mlp", "--replicas", 2, "--steps", 2, "--systems",
                           "stage0"], program="trainers/bench",
                change=lambda line: re.sub(r" \d+ .*", lambda found: f" {round(int(found[0].split()[0]) / 16)} x 16", line))
    outputs.run("refusals", ["--config", work / "none.yaml"], [*linear, "--set", "optimizer.lr=fast"],
                [*linear, "--set", "x.y=1"], [*linear, "--replicas", 0], [*linear, "--set", "parallel.zero_stage=4"],
                ["run", "--nothing"], ["evaluate"], ["eval", "--checkpoint", work],
                [*linear, "--resume", "auto", "--output", work / "empty"],
                [*linear, "--nnodes", 2], [*linear, "--output", work / "linear"], [*mlp, "--set", "data.batch_size=0"])
    outputs.run("failure", [*linear, "--set", "optimizer.lr=1e30", "--set", "trainer.steps=9", "--output", work / "failed"],
                ["inspect", work / "failed"])
    outputs.keep_run("failure", work / "failed")
    for name in "maps", "meshes", "launched", "out_of_step", "misuse":
        outputs.run(name, [name], program="tests/outputs")
    subprocess.run(["rm", "-r", work], check=True)


if __name__ == "__main__":
    main()
