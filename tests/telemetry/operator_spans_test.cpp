#include "framework/telemetry/operator_spans.h"

#include <algorithm>
#include <string>
#include <thread>
#include <vector>

#include <ATen/Functions.h>

#include "framework/base/text.h"
#include "tests/catch.h"

namespace lockstep {

using timeline::Recorder;

TEST_CASE("operators that a replica's thread calls are spans of a track by their names",
          "[trace]") {
  Recorder recorder(1);
  const auto track = recorder.take(0, "replica");
  const timeline::TrackScope here(track.get());
  const at::Tensor x = at::ones({2, 2}).requires_grad_();
  {
    const telemetry::OperatorSpans operators;
    at::matmul(x, x).sum().backward();
    std::thread([&] { (void)at::neg(x.detach()); }).join();
  }
  (void)at::neg(x.detach());
  const Recorder::Recording recording = recorder.read(0, 1);
  CHECK(recording.track == "operators");
  const auto names = mapped(recording.spans, &Recorder::Span::name);
  CHECK(std::ranges::count(names, "aten::matmul") == 1);
  CHECK(std::ranges::count(names, "aten::sum") >= 1);
  CHECK(std::ranges::count(names, "SumBackward0") == 1);
  CHECK(std::ranges::count(names, "aten::neg") == 0);
  const auto span_of = [&](const std::string& name) {
    return *std::ranges::find(recording.spans, name, &Recorder::Span::name);
  };
  // The product is a part of what was called.
  CHECK(span_of("aten::mm").begin >= span_of("aten::matmul").begin);
  CHECK(span_of("aten::mm").end <= span_of("aten::matmul").end);
  CHECK(std::ranges::all_of(recording.spans, [](const Recorder::Span& span) {
    return span.kind == timeline::SpanKind::operation && span.end >= span.begin;
  }));
}

TEST_CASE("operators of a thread without a replica are not recorded", "[trace]") {
  const telemetry::OperatorSpans operators;
  CHECK(at::ones({2}).sum().item<float>() == 2);
}

}  // namespace lockstep
