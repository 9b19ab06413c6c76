// LibTorch has a protobuf, too: from Debian the same library, from PyPI one that it brings.

#include <memory>
#include <string>

#include <ATen/ops/ones.h>
#include <torch/csrc/jit/serialization/export.h>
#include <torch/script.h>

#include "framework/telemetry/summary_writer.h"
#include "tests/catch.h"
#include "tests/support/event_records.h"
#include "tests/support/files.h"

using namespace lockstep;
using namespace lockstep::testing;

TEST_CASE("a model is loaded, and exported by LibTorch's protobuf, beside a writer of events",
          "[telemetry]") {
  const TemporaryFolder home;
  SummaryWriter writer(home.path());
  writer.add_scalar("before", 1, 1);
  torch::jit::Module made("doubled");
  made.define("def forward(self, x):\n  return 2 * x\n");
  made.save(home.path("model.pt"));
  torch::jit::Module loaded = torch::jit::load(home.path("model.pt"));
  const at::Tensor output = loaded.forward({at::ones({3})}).toTensor();
  CHECK(output.sum().item<double>() == 6);

  const auto graph = std::make_shared<torch::jit::Graph>();
  graph->registerOutput(
      graph->addInput()->setType(at::TensorType::createContiguous(at::kFloat, at::kCPU, {2})));
  CHECK_THAT(torch::jit::pretty_print_onnx(graph, {}, /*onnx_opset_version=*/13,
                                           /*defer_weight_export=*/false),
             ContainsSubstring("producer_name: \"pytorch\""));

  writer.add_histogram("output", output, 2);
  writer.add_hparams({{"lr", 0.5}}, {{"after", 3}}, 3);
  const ShownValues shown = shown_in(home.path());
  CHECK(shown.at("before").at(1) == "1");
  CHECK(shown.at("output").contains(2));
  CHECK(shown.at("after").at(3) == "3");
}
