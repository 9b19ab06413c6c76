#!/usr/bin/env python3
"""Has TensorBoard read the event files that a test writes; exits with 1 if it reads other values.

    tests/telemetry/read_events.py

It installs TensorBoard from PyPI into a throw-away environment and runs itself there, with
build/release/tests/telemetry_tests. Neither the build nor the tests run this.
"""

import math
import os
import pathlib
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


def inside(_):
    import numpy
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
