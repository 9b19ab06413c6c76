#!/usr/bin/env python3
"""Looks at reports in headless Chromium: makes runs of 1, 3 and 200,000 lines with hostile names, has train write their
reports, opens these at three widths, light, dark and printed, and leaves the pictures in a folder, for people to look at.
Fails where a page is wider than its window, a text is cut, a name became more than text, or opening takes 1 s.

tests/report/look.py [--train build/release/trainers/train] [--pictures report-pictures]
"""
import argparse
import json
import math
import pathlib
import random
import re
import subprocess
import tempfile

HOSTILE = "</script><script>document.title='broken'</script><b>é"

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
addEventListener('load', () => {
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
    """A run with so many lines of metrics, skipped steps, parts of its steps and an evaluation now and then."""
    folder.mkdir(parents=True)
    (folder / "config.yaml").write_text(
        f"model: {{name: mlp, hidden: [1024, 1024]}}\ndata: {{name: images, classes: [cat, {json.dumps(HOSTILE)}]}}\n"
        "parallel: {replicas: 4}\n" + "trainer:\n" + "".join(f"  key_{i}: {i}\n" for i in range(20)))
    draw = random.Random(lines)
    with open(folder / "metrics.jsonl", "w") as out:
        for i in range(1, lines + 1):
            step, noise = 20 * i, draw.random()
            fall = math.exp(-4 * i / lines)
            line = {"step": step, "elapsed_s": 0.172 * i, "samples": 128 * step, "epoch": 1 + i // 24,
                    "loss": 0.2 + 2.1 * fall + 0.2 * noise * noise, "lr": 0.001 * math.cos(1.5 * i / lines),
                    "samples_per_s": 16000 + 900 * noise, "gradient_norm": 0.5 + noise + 3 * fall}
            if i == lines // 2:
                line["loss"] = None
            if i >= lines // 2:
                line["skipped_steps"] = 1 if i < 3 * lines // 4 else 4
            line["parts"] = {name: share + 0.02 * draw.random()
                             for name, share in (("data", 0.1), ("forward", 0.3), ("backward", 0.5))}
            out.write(json.dumps(line) + "\n")
            if i % max(lines // 50, 1) == 0:
                loss = 0.25 + 2.1 * fall
                out.write(json.dumps({"step": step, "elapsed_s": 0.172 * i, "samples": 128 * step, "weights": "trained",
                                      "validation_loss": loss, "validation_accuracy": 1 - 0.4 * loss,
                                      "test_loss": loss + 0.05, "test_accuracy": 0.98 - 0.4 * loss,
                                      "test_" + HOSTILE: 0.5}) + "\n")
    memory = {"parameters": 7440424, "gradients": 7440424, "optimizer_state": 7440424, "communication": 0, "host": 59663464}
    (folder / "result.json").write_text(json.dumps({
        "steps": 20 * lines, "replicas": 4, "loss": 0.31, "test": {"loss": 0.3, "accuracy": 0.9, HOSTILE: 1},
        "parameters_sha256": "d34542fecf0dc99ccf5276ccfbb2bd2049ae27b1fd54c59fa0c29263f49c361b", "libtorch": "1.13.0",
        "memory": {"predicted": memory, "measured": memory, "rest": 1234567}}))


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


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--train", default="build/release/trainers/train")
    parser.add_argument("--pictures", type=pathlib.Path, default=pathlib.Path("report-pictures"))
    flags = parser.parse_args()
    flags.pictures.mkdir(parents=True, exist_ok=True)
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


if __name__ == "__main__":
    main()
