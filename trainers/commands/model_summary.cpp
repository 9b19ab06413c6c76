#include "trainers/commands/model_summary.h"

#include <algorithm>
#include <map>
#include <memory>
#include <set>

#include "framework/base/non_copyable.h"
#include "framework/base/text.h"
#include "framework/base/text_table.h"
#include "framework/training/block.h"
#include "framework/training/evaluation_mode.h"
#include "framework/training/forward_place.h"
#include "trainers/run/operation_count.h"

namespace lockstep {
namespace {

// Lets Blocks run as they are, and notes what comes out of them.
class RunRecorder final : public training::BlockRunner {
 public:
  explicit RunRecorder(const OperationCount& operations) : operations_(operations) {}

  at::Tensor run(Block& block, const at::Tensor& input,
                 const training::BlockForward& forward) override {
    const std::int64_t before = operations_.multiply_adds();
    at::Tensor output = forward(input);
    runs_[&block].push_back({output.sizes().vec(), 2 * (operations_.multiply_adds() - before)});
    return output;
  }

  [[nodiscard]] const std::vector<SeenRun>& runs_of(const torch::nn::Module& module) {
    return runs_[&module];
  }

 private:
  const OperationCount& operations_;
  std::map<const torch::nn::Module*, std::vector<SeenRun>> runs_;
};

// A model's Blocks have a runner while it lives.
class RunnerScope : private NonCopyable {
 public:
  RunnerScope(const Model& model, const std::shared_ptr<training::BlockRunner>& runner) {
    for (const auto& module : model.modules()) {
      const auto block = std::dynamic_pointer_cast<Block>(module);
      if (block) blocks_.emplace_back(block)->set_runner(runner);
    }
  }
  ~RunnerScope() {
    for (const auto& block : blocks_) block->set_runner(nullptr);
  }

 private:
  std::vector<std::shared_ptr<Block>> blocks_;
};

// "Linear" of torch::nn::LinearImpl
std::string class_of(const torch::nn::Module& module) {
  std::string name = module.name();
  name.resize(std::min(name.size(), name.find('<')));
  const std::size_t space = name.rfind("::");
  if (space != std::string::npos) name.erase(0, space + 2);
  if (name.ends_with("Impl")) name.resize(name.size() - 4);
  return name;
}

// The modules' rows, without runs. Parameters are counted where they are first.
ModelSummary parameters_of(const Model& model) {
  ModelSummary summary;
  std::set<const void*> known;
  for (const auto& item : model.named_modules("")) {
    LayerSummary layer{.path = item.key(), .kind = class_of(*item.value())};
    const auto own = item.value()->parameters(/*recurse=*/false);
    for (const at::Tensor& parameter : own) {
      if (!known.insert(parameter.unsafeGetTensorImpl()).second) continue;
      layer.parameters += parameter.numel();
      if (parameter.requires_grad()) summary.trained_parameters += parameter.numel();
    }
    summary.parameters += layer.parameters;
    const bool is_block = dynamic_cast<const Block*>(item.value().get()) != nullptr;
    if (layer.path.empty() || is_block || !own.empty()) summary.layers.push_back(layer);
  }
  return summary;
}

TextTable::value_type row_of(const LayerSummary& layer) {
  std::vector<std::string> shapes;
  std::int64_t flops = 0;
  for (const SeenRun& run : layer.runs) {
    shapes.push_back(str("(", join(run.output_shape), ")"));
    flops += run.flops;
  }
  const bool is_seen = !layer.runs.empty();
  return {layer.path.empty() ? "(the model)" : layer.path, layer.kind,
          std::to_string(layer.parameters), is_seen ? std::to_string(flops) : "",
          join(shapes, " ")};
}

}  // namespace

ModelSummary summarize(Model& model, const at::Tensor& inputs) {
  const training::EvaluationMode evaluation(model);
  ModelSummary summary = parameters_of(model);
  const OperationCount operations;
  const auto recorder = std::make_shared<RunRecorder>(operations);
  const auto modules = model.named_modules("");
  const at::Tensor output = [&] {
    const RunnerScope scope(model, recorder);
    return run_forward(model, inputs);
  }();
  summary.flops = 2 * operations.multiply_adds();
  for (LayerSummary& layer : summary.layers) {
    if (layer.path.empty()) {
      layer.runs.push_back({output.sizes().vec(), summary.flops});
    } else {
      layer.runs = recorder->runs_of(*modules[layer.path]);
    }
  }
  return summary;
}

std::string summary_text(const ModelSummary& summary, const at::Tensor& inputs) {
  TextTable rows{{"layer", "kind", "parameters", "FLOPs", "output"}};
  for (const LayerSummary& layer : summary.layers) rows.push_back(row_of(layer));
  std::string text =
      str("One sample: inputs (", join(inputs.sizes()), ").\n\n", table_text(rows, "llrrl"));
  text += str("\nParameters: ", summary.parameters);
  if (summary.trained_parameters < summary.parameters) {
    text += str(", of which ", summary.trained_parameters, " are trained");
  }
  text += str(
      "; each line has those of the module itself.\nFLOPs of a sample's forward: ", summary.flops,
      "; two for each multiply-add of matrix products, convolutions,\n"
      "attention and recurrent layers, as they ran; nothing else is counted.\n"
      "FLOPs and outputs are known of the whole model and of Blocks.\n");
  return text;
}

}  // namespace lockstep
