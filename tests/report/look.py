#!/usr/bin/env python3
"""Looks at reports in headless Chromium: makes runs of 1, 3 and 200,000 lines with hostile names, has train write their
reports, opens these at three widths, light, dark and printed, and leaves the pictures in a folder, for people to look at.
Fails where a page is wider than its window, texts are cut or lie over each other, a name became more than text, or opening
takes 1 s. Then a run is killed, stopped for a while, restarted and resumed on fewer workers: its report must have one curve
and the marks. With --readme it becomes the pictures that README.md shows.

tests/report/look.py [--train build/release/trainers/train] [--pictures report-pictures] [--readme trainers/report]
"""
import argparse
import json
import math
import os
import pathlib
import random
import re
import signal
import subprocess
import tempfile
import time

HOSTILE = "</script><script>document.title='broken'</script><b>é"

# 2 by 2 pixels.
PICTURE = ("data:image/png;base64,iVBORw0KGgoAAAANSUhEUgAAAAIAAAACCAAAAABX3VL4AAAADklEQVR4nGNgaGA48B8ABI"
           "UCQKUi1hUAAAAASUVORK5CYII=")

# Uses all that a page can be asked for, and says in its own document what is wrong.
PROBE = """<script>
const wrong = [];
addEventListener('error', (event) => wrong.push(event.message));
function use() {
  const send = (target, event) => target.dispatchEvent(event);
  const over = document.getElementById('over');
  for (const axis of ['time', 'samples', 'step']) {
    over.value = axis;
    send(over, new Event('change'));
    for (const figure of document.querySelectorAll('figure')) {
      const curve = figure.querySelector('.curve');
      for (const key of ['End', 'ArrowLeft', '+', '-', 'Escape', 'Home']) send(curve, new KeyboardEvent('keydown', {key}));
      if (!/: \\S/.test(figure.querySelector('.values').textContent)) wrong.push('no value is read: ' + figure.textContent);
      const details = figure.querySelector('details');
      details.open = true;
      send(details, new Event('toggle'));
      if (details.querySelectorAll('tbody tr').length === 0) wrong.push('a table is empty: ' + figure.textContent);
      details.open = false;
      for (const box of figure.querySelectorAll('input:enabled')) { box.click(); box.click(); }
    }
  }
  const smoothing = document.getElementById('smoothing');
  for (const points of ['20', '1']) { smoothing.value = points; send(smoothing, new Event('input')); }
  document.getElementById('whole').click();
}
// Texts as wide as their words, which must not lie over each other.
function apart(elements) {
  const boxes = [...elements].filter((each) => each.textContent.trim()).map((each) => {
    const range = document.createRange();
    range.selectNodeContents(each);
    return [each.textContent.slice(0, 40), range.getBoundingClientRect()];
  }).filter(([, box]) => box.width > 0);
  boxes.forEach(([text, a], i) => boxes.slice(i + 1).forEach(([other, b]) => {
    const over = Math.min(a.right, b.right) - Math.max(a.left, b.left) > 1 &&
      Math.min(a.bottom, b.bottom) - Math.max(a.top, b.top) > 1;
    if (over) wrong.push('over each other: ' + text + ' and ' + other);
  }));
}
addEventListener('load', () => {
  apart(document.querySelectorAll('h1, h2, #facts div, #controls label, #controls button, #controls .hint'));
  for (const figure of document.querySelectorAll('figure')) {
    apart(figure.querySelectorAll('h3, figcaption label, .dygraph-axis-label, .series span:last-child, summary'));
  }
  if (document.documentElement.scrollWidth > innerWidth) wrong.push('the page is wider than its window');
  if (document.scripts.length !== SCRIPTS) wrong.push('there are ' + document.scripts.length + ' scripts');
  if (document.querySelector('main b, header b')) wrong.push('a name became an element');
  if (!document.title.includes('<script>')) wrong.push('the title is ' + document.title);
  for (const each of document.querySelectorAll('h1, h2, h3, dt, dd, label, .values, figcaption, td, th, .dygraph-axis-label')) {
    if (each.scrollWidth > each.clientWidth + 1 && getComputedStyle(each).display !== 'inline') {
      wrong.push('cut: ' + each.className + ' ' + each.textContent.slice(0, 40));
    }
  }
  use();
  document.body.dataset.wrong = JSON.stringify(wrong);
});
document.body.dataset.opened = String(performance.now());
</script></body>"""


def make_run(folder, lines):
    """A run with so many lines of metrics, skipped steps, a stall, parts of its steps and an evaluation now and then."""
    folder.mkdir(parents=True)
    (folder / "config.yaml").write_text(
        f"model: {{name: mlp, hidden: [1024, 1024]}}\ndata: {{name: images, classes: [cat, {json.dumps(HOSTILE)}]}}\n"
        "parallel: {replicas: 4}\n" + "trainer:\n" + "".join(f"  key_{i}: {i}\n" for i in range(20)))
    (folder / "events.jsonl").write_text(
        json.dumps({"time": 0, "event": "started", "steps": 0, "command": "train --output " + HOSTILE}) + "\n" +
        json.dumps({"time": 0.172 * 0.6 * lines, "event": "stalled", "text": f"stalled for 15 s in {HOSTILE * 4}"}) + "\n")
    draw = random.Random(lines)
    with open(folder / "metrics.jsonl", "w") as out:
        for i in range(1, lines + 1):
            step, noise = 20 * i, draw.random()
            fall = math.exp(-4 * i / lines)
            line = {"step": step, "time": 0.172 * i, "elapsed_s": 0.172 * i, "samples": 128 * step, "epoch": 1 + i // 24,
                    "loss": 0.2 + 2.1 * fall + 0.2 * noise * noise, "lr": 0.001 * math.cos(1.5 * i / lines),
                    "samples_per_s": 16000 + 900 * noise, "gradient_norm": 0.5 + noise + 3 * fall}
            if i == lines // 2:
                line["loss"] = None
            if i >= lines // 2:
                line["skipped_steps"] = 1 if i < 3 * lines // 4 else 4
            line["parts"] = {name: share + 0.02 * draw.random()
                             for name, share in (("data", 0.1), ("forward", 0.3), ("backward", 0.5))}
            line["replica_own_s"] = {str(replica): 0.9 + 0.1 * replica * draw.random() for replica in range(4)}
            out.write(json.dumps(line) + "\n")
            if i % max(lines // 50, 1) == 0:
                loss = 0.25 + 2.1 * fall
                out.write(json.dumps({"step": step, "elapsed_s": 0.172 * i, "samples": 128 * step, "weights": "trained",
                                      "validation_loss": loss, "validation_accuracy": 1 - 0.4 * loss,
                                      "test_loss": loss + 0.05, "test_accuracy": 0.98 - 0.4 * loss,
                                      "test_" + HOSTILE: 0.5}) + "\n")
    names = ["T-shirt/top", "Trouser", "Pullover", "Dress", HOSTILE]
    (folder / "evaluation_test.json").write_text(json.dumps({
        "set": "test", "step": 20 * lines, "samples": 1000, "class_names": names,
        "confusion": [[150 + draw.randrange(50) if i == j else draw.randrange(20) for j in range(5)] for i in range(5)],
        "worst": [{"index": i, "sample": f"sample {i} ('{HOSTILE}.png')", "target": 4, "target_name": HOSTILE, "prediction": i % 4,
                   "prediction_name": names[i % 4], "loss": 9.123456 - i / 3, "picture": PICTURE} for i in range(20)]}))
    (folder / "evaluation_validation.json").write_text(json.dumps({
        "set": "validation", "step": 20 * lines, "samples": 1000,
        "confusion": [[90 if i == j else draw.randrange(3) for j in range(100)] for i in range(100)],
        "texts": [{"prompt": "What is the sound of one hand", "text": f" clapping?\n\t\t-- {HOSTILE}\n" + "long" * 30}]}))
    memory = {"parameters": 7440424, "gradients": 7440424, "optimizer_state": 7440424, "communication": 0, "host": 59663464}
    (folder / "result.json").write_text(json.dumps({
        "steps": 20 * lines, "replicas": 4, "loss": 0.31, "test": {"loss": 0.3, "accuracy": 0.9, HOSTILE: 1},
        "parameters_sha256": "d34542fecf0dc99ccf5276ccfbb2bd2049ae27b1fd54c59fa0c29263f49c361b", "libtorch": "1.13.0",
        "memory": {"predicted": memory, "measured": memory, "rest": 1234567,
                   "replicas": [{"host": i // 2, "resident": 20000000} for i in range(4)]}}))


def chromium(*flags):
    return subprocess.run(["chromium", "--headless", "--no-sandbox", "--disable-gpu", "--hide-scrollbars", *flags],
                          check=True, capture_output=True, text=True).stdout


def check(page, width, is_dark):
    """Opens a copy of the page with the probe; returns the seconds that this took."""
    text = page.read_text()
    probed = page.with_name("probed.html")
    probe = PROBE.replace("SCRIPTS", str(text.count("<script") + 1))
    probed.write_text(probe.join(text.rsplit("</body>", 1)))
    scheme = [f"--blink-settings=preferredColorScheme={0 if is_dark else 1}"]
    document = chromium(*scheme, f"--window-size={width},1000", "--dump-dom", probed.as_uri())
    body = re.search(r"<body[^>]*>", document)[0]
    wrong = re.search(r'data-wrong="([^"]*)"', body)
    assert wrong, f"{page}: it has no load event: {body}"
    assert wrong[1] == "[]", f"{page} at {width} pixels: {wrong[1]}"
    return float(re.search(r'data-opened="([^"]*)"', body)[1]) / 1000


def lines_of(run):
    """The whole lines of a run's metrics so far."""
    file = run / "metrics.jsonl"
    return [json.loads(line) for line in file.read_text().splitlines(True) if line.endswith("\n")] if file.exists() else []


def interrupted_run(train, run):
    """Trains a perceptron for two epochs: a replica is stopped for a while and later killed, so that the job starts again;
    then the whole job is killed, and goes on in one worker."""
    config = [train, "--config", "configs/fashion_mnist_mlp.yaml", "--output", run]
    settings = ["trainer.epochs=2", "trainer.log_every=20", "trainer.eval_every=200", "checkpoint.every=100",
                "parallel.stall_warn_s=1"]
    flags = [word for setting in settings for word in ("--set", setting)]
    job = subprocess.Popen(config + flags + ["--max-restarts", "1"], stdout=subprocess.DEVNULL)

    def wait_for(step):
        while job.poll() is None and (not lines_of(run) or lines_of(run)[-1]["step"] < step):
            time.sleep(0.05)
        assert job.poll() is None, "the job has ended too early"

    def replica():
        children = pathlib.Path(f"/proc/{job.pid}/task/{job.pid}/children").read_text().split()
        return int(children[-1])

    wait_for(200)
    stopped = replica()
    os.kill(stopped, signal.SIGSTOP)
    time.sleep(2.5)
    os.kill(stopped, signal.SIGCONT)
    wait_for(460)
    os.kill(replica(), signal.SIGKILL)
    while "restarts" not in json.dumps(lines_of(run)):
        time.sleep(0.05)
    wait_for(760)
    job.kill()
    job.wait()
    subprocess.run(config + flags + ["--resume", "auto", "--workers", "1"], check=True, stdout=subprocess.DEVNULL)


def check_interrupted(page):
    """One curve, without a gap or a step twice, and the marks."""
    data = json.loads(re.search(r'<script type="application/json" id="data">(.*?)</script>', page.read_text(), re.S)[1])
    kinds = [mark["kind"] for mark in data["marks"] if mark["kind"] != "slow"]
    assert kinds[0] == "stalled" and [kind for kind in kinds if kind != "stalled"] == ["restarted", "resumed"], kinds
    assert any("parallel.workers" in mark["text"] for mark in data["marks"]), data["marks"]
    loss = data["charts"][0]["series"][0]
    assert loss["name"] == "training" and loss["step"] == sorted(set(loss["step"])), loss["step"]
    assert max(b - a for a, b in zip(loss["step"], loss["step"][1:])) <= 20, loss["step"]
    assert loss["time"] == sorted(loss["time"]), loss["time"]


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--train", default="build/release/trainers/train")
    parser.add_argument("--pictures", type=pathlib.Path, default=pathlib.Path("report-pictures"))
    parser.add_argument("--readme", type=pathlib.Path, help="folder for report-light.png and report-dark.png")
    flags = parser.parse_args()
    for folder in filter(None, (flags.pictures, flags.readme)):
        folder.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory() as home:
        for lines in (1, 3, 200_000):
            run = pathlib.Path(home) / str(lines) / HOSTILE.replace("/", "∕")
            make_run(run, lines)
            page = pathlib.Path(home) / f"{lines}.html"
            subprocess.run([flags.train, "report", run, "--output", page], check=True, capture_output=True)
            for width, height in ((360, 4600), (1280, 2600), (2560, 1700)):
                for is_dark in (False, True):
                    seconds = check(page, width, is_dark)
                    assert seconds < 1, f"{lines} lines take {seconds} s to open"
                    name = f"{lines}-{width}-{'dark' if is_dark else 'light'}"
                    chromium(f"--blink-settings=preferredColorScheme={0 if is_dark else 1}", f"--window-size={width},{height}",
                             "--virtual-time-budget=3000", f"--screenshot={flags.pictures / name}.png", page.as_uri())
                    print(f"{name}: {page.stat().st_size} bytes, {seconds:.2f} s")
            chromium("--no-pdf-header-footer", f"--print-to-pdf={flags.pictures / str(lines)}.pdf", page.as_uri())
        run = pathlib.Path(home) / "fashion_mnist_mlp"
        interrupted_run(flags.train, run)
        page = run / "report.html"
        check_interrupted(page)
        for is_dark in (False, True):
            name = f"report-{'dark' if is_dark else 'light'}.png"
            chromium(f"--blink-settings=preferredColorScheme={0 if is_dark else 1}", "--window-size=1040,795",
                     "--virtual-time-budget=3000", f"--screenshot={(flags.readme or flags.pictures) / name}", page.as_uri())
            print(name)


if __name__ == "__main__":
    main()
