#!/usr/bin/env python3
"""Has TensorBoard read the event files that a test and a run write; exits with 1 if it reads other values.

    tests/telemetry/read_events.py

It installs TensorBoard from PyPI into a throw-away environment and runs itself there, with
build/release/tests/telemetry_tests and build/release/trainers/train. Neither the build nor the tests run this.
"""

import json
import math
import os
import pathlib
import shutil
import subprocess
import sys
import tempfile

ROOT = pathlib.Path(__file__).resolve().parents[2]
sys.path.append(str(ROOT / "tests" / "support"))
import recording  # noqa: E402

PINNED = ["tensorboard==2.21.0", "absl-py==2.5.1", "grpcio==1.85.3", "Markdown==3.11.3",
          "MarkupSafe==3.0.4", "numpy==2.4.6", "packaging==26.4", "pillow==13.0.0",
          "protobuf==7.36.2", "setuptools==65.5.0", "typing_extensions==4.16.0", "Werkzeug==3.1.9"]


def runs_in(folder):
    """What TensorBoard's own reader holds of each run, and its table of hyperparameters."""
    from tensorboard.backend.event_processing import data_provider, plugin_event_multiplexer
    from tensorboard.plugins import base_plugin
    from tensorboard.plugins.hparams import backend_context, list_session_groups
    from tensorboard.plugins.hparams import api_pb2
    from tensorboard.context import RequestContext

    runs = plugin_event_multiplexer.EventMultiplexer(tensor_size_guidance={})
    runs.AddRunsFromDirectory(str(folder))
    runs.Reload()
    found = {}
    for run in sorted(runs.Runs()):
        accumulator = runs.GetAccumulator(run)
        for tag in accumulator.Tags()["tensors"]:
            kind = accumulator.SummaryMetadata(tag).plugin_data.plugin_name
            found[run, tag] = kind, [(event.step, event.wall_time, event.tensor_proto)
                                     for event in accumulator.Tensors(tag)]
    context = backend_context.Context(base_plugin.TBContext(
        data_provider=data_provider.MultiplexerDataProvider(runs, str(folder))))
    request = api_pb2.ListSessionGroupsRequest(start_index=0, slice_size=100)
    request.allowed_statuses.extend([api_pb2.STATUS_SUCCESS, api_pb2.STATUS_RUNNING,
                                     api_pb2.STATUS_UNKNOWN, api_pb2.STATUS_FAILURE])
    experiment = context.experiment_from_metadata(
        RequestContext(), "", True, context.hparams_metadata(RequestContext(), ""),
        context.hparams_from_data_provider(RequestContext(), "", 100))
    groups = list_session_groups.Handler(RequestContext(), context, "", request).run()
    return found, experiment, groups


def array_of(tensor):
    from tensorboard.util import tensor_util
    return tensor_util.make_ndarray(tensor)


def check_runs(folder):
    """Two runs of a config, of which one is stopped and goes on."""
    def train(name, *flags):
        subprocess.run([ROOT / "build/release/trainers/train", "--config", "configs/penguins.yaml", "--quiet",
                        "--set", "telemetry.histograms=50", "--set", "checkpoint.every=50", "--set",
                        "data.validation=0.2", "--output", folder / name, *flags], cwd=ROOT, check=True)

    train("whole", "--set", "optimizer.lr=0.001")
    train("parts", "--stop-after", "70")
    (folder / "parts/result.json").unlink()
    (folder / "parts/checkpoints/latest").unlink()
    shutil.rmtree(folder / "parts/checkpoints/step-00000070")
    train("parts", "--resume", "auto")
    found, experiment, groups = runs_in(folder)
    [last] = {max(step for step, *_ in events) for (_, tag), (_, events) in found.items() if tag == "loss/train"}
    logged = [*range(50, last, 50), last]
    for run in "whole", "parts":
        kinds = {tag: kind for (of, tag), (kind, _) in found.items() if of == run}
        steps = {tag: [step for step, *_ in events] for (of, tag), (_, events) in found.items() if of == run}
        for tag in "loss/train", "train/lr", "train/samples_per_s", "train/gradient_norm":
            assert kinds[tag] == "scalars" and steps[tag] == logged, (run, tag, steps[tag])
        for tag in "loss/validation", "loss/test", "accuracy/validation", "accuracy/test":
            assert kinds[tag] == "scalars" and steps[tag][-1] == last, (run, tag, steps[tag])
        for tag in "parameters/0.weight", "gradients/1.bias":
            assert kinds[tag] == "histograms" and steps[tag] == [*range(50, last + 1, 50)], (run, tag, steps[tag])
        text = array_of(found[run, "config/text_summary"][1][0][2]).tolist()[0]
        assert b"    model:\n      name: mlp\n" in text, text
    rates = [hparam.name for hparam in experiment.hparam_infos if hparam.differs]
    assert rates == ["optimizer.lr"], rates
    assert len(groups.session_groups) == 2
    for group in groups.session_groups:
        [session] = group.sessions
        assert group.hparams["optimizer.lr"].number_value == {"whole": 0.001, "parts": 0.01}[session.name]
        values = {metric.name.tag: metric.value for metric in group.metric_values}
        result = json.loads((folder / session.name / "result.json").read_text())
        assert abs(values["accuracy/test"] - result["test"]["accuracy"]) < 1e-6, (values, result)


def inside(_):
    import numpy
    with tempfile.TemporaryDirectory() as folder:
        check_runs(pathlib.Path(folder))
    with tempfile.TemporaryDirectory() as folder:
        subprocess.run([ROOT / "build/release/tests/telemetry_tests",
                        "samples of all kinds of events"],
                       env={**os.environ, "LOCKSTEP_EVENTS": folder}, check=True,
                       stdout=subprocess.DEVNULL)
        found, experiment, groups = runs_in(folder)

    def events_of(kind, run, tag):
        read, events = found.pop((run, tag))
        assert read == kind, (run, tag, read)
        return [(step, array_of(tensor)) for step, _, tensor in events]

    assert events_of("scalars", "run", "loss/train") == \
        [(step, numpy.float32(1 / (step + 1))) for step in range(5)]
    assert found["run", "lr"][1][0][1] == 1e9
    assert events_of("scalars", "run", "lr") == [(3, 0)]
    assert math.isnan(events_of("scalars", "run", "loss/nan")[0][1])
    assert events_of("scalars", "run/both_a", "both") == [(7, 1.5)]
    assert events_of("scalars", "run/both_b_c", "both") == [(7, -2)]
    [(step, text)] = events_of("text", "run", "config/text_summary")
    assert step == 2 and text.tolist() == ["model: {name: mlp}\n\ufffd".encode()]
    # A histogram's rows are lower end, upper end and count.
    [(step, rows)] = events_of("histograms", "run", "weights")
    values = numpy.array([-3, -0.5, 0, 0, 1e-13, 0.25, 0.5, 0.5, 2, 1e21])
    assert step == 4 and rows[0, 0] == -3 and rows[-1, 1] == 1e21 and rows[:, 2].sum() == 10
    for low, high, count in rows[1:-1]:
        assert count == ((values >= low) & (values < high)).sum()
    [(step, (width, height, first))] = events_of("images", "run", "wrong/0")
    assert step == 6 and (width, height) == (b"3", b"2") and first.startswith(b"\x89PNG")
    assert [step for step, _ in events_of("images", "run", "wrong/1")] == [6]
    assert events_of("scalars", "run", "accuracy") == [(9, 0.75)]
    assert events_of("scalars", "resumed", "loss") == \
        [(0, 0), (1, 1), (2, 2), (3, 33), (4, 34)]
    assert {kind for kind, _ in found.values()} == {"hparams"}, found

    assert sorted(info.name for info in experiment.hparam_infos) == \
        ["layers", "lr", "model", "nesterov"]
    [group] = groups.session_groups
    values = {name: value.WhichOneof("kind") and getattr(value, value.WhichOneof("kind"))
              for name, value in group.hparams.items()}
    assert values == {"layers": 3, "lr": 0.25, "model": "mlp", "nesterov": False}, values
    assert {metric.name.tag: metric.value for metric in group.metric_values}["accuracy"] == 0.75
    print("TensorBoard has read all as it was written")


recording.main(__file__, __doc__, PINNED, inside)
