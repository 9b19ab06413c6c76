// One digest, wherever a job of the larger models runs: with joint statistics, dropout,
// augmentation, recomputation, averages and losses that are weighted over replicas.

#include <cstdint>
#include <string>
#include <utility>
#include <vector>

#include "framework/base/random.h"
#include "framework/base/text.h"
#include "tests/catch.h"
#include "tests/formats/idx_files.h"
#include "tests/support/settings.h"
#include "tests/support/temporary_folder.h"
#include "tests/train/train_in_fork.h"
#include "tests/train/train_program.h"

using namespace lockstep;
using namespace lockstep::testing;

namespace {

// 4 replicas whose epochs end in steps with few samples for some and none for others.
Flags model_flags(const TemporaryFolder& folder, const std::string& model) {
  if (model == "resnet") {
    folder.write("resnet.yaml",
                 "model: {name: resnet, depth: 8, width: 4, stochastic_depth: 0.3}\n"
                 "data: {name: fashion_mnist, root: ., batch_size: 3, crop: 2, flip: true}\n"
                 "loss: {name: cross_entropy, class_weights: [1, 2, 1, 1, 1, 1, 1, 1, 1, 0.5]}\n"
                 "optimizer: {name: sgd, lr: 0.1, momentum: 0.9}\n"
                 "trainer: {steps: 50, accumulate: 2, ema_decay: 0.9}\n");
    for (const auto& [set, count] : {std::pair{"train", 50U}, {"t10k", 7U}}) {
      std::string pixels, labels;
      for (std::uint32_t i = 0; i < count; ++i) {
        for (std::uint32_t j = 0; j < 28 * 28; ++j) {
          pixels += static_cast<char>(Key(i).draw(j) >> (i % 10 < 5 ? 56 : 58));
        }
        labels += static_cast<char>(i % 10);
      }
      folder.write(str(set, "-images-idx3-ubyte"), idx_header({count, 28, 28}) + pixels);
      folder.write(str(set, "-labels-idx1-ubyte"), idx_header({count}) + labels);
    }
  } else {
    folder.write("gpt.yaml",
                 "model: {name: gpt, layers: 2, heads: 2, width: 16, dropout: 0.2}\n"
                 "data: {name: text, path: text, context: 24, batch_size: 2, validation: 0.2}\n"
                 "optimizer: {name: adamw, lr: 0.01}\n"
                 "trainer: {steps: 50, clip_norm: 1.0, metrics: [bits_per_byte]}\n");
    std::string text;
    for (int i = 0; i < 60; ++i) text += str("Line ", i * i, " of a text to learn from.\n");
    folder.write("text", text);
  }
  return Flags{"--config", model + ".yaml", "--replicas", "4"} +
         set("parallel.threads_per_replica=1 checkpoint.every=10 checkpoint.keep=9");
}

nlohmann::json outcome(const TemporaryFolder& folder, const std::string& name, const Flags& flags) {
  INFO(name);
  must_train(folder.path(), flags + Flags{"--output", name});
  const nlohmann::json result = result_of(folder.path() / name);
  nlohmann::json seen;
  for (const char* const file : {"evaluation_test.json", "evaluation_validation.json"}) {
    if (!std::filesystem::exists(folder.path() / name / file)) continue;
    seen[file] = read_json(folder.path() / name / file);
    for (auto& each : seen[file]["texts"]) {  // at stage 3 these are shorter
      each["text"] = each["text"].get<std::string>().substr(0, 1);
    }
  }
  REQUIRE(!seen.is_null());
  return {result["parameters_sha256"],
          result.value("buffers_sha256", ""),
          result["loss"],
          result["eval"],
          result.value("validation", nlohmann::json()),
          seen};
}

}  // namespace

TEST_CASE("ResNet and GPT have one digest on any workers, at all stages and after a resume",
          "[slow]") {
  const std::vector<Flags> placements{
      {},
      set("parallel.zero_stage=1 model.recompute=true") + Flags{"--workers", "1"},
      set("parallel.zero_stage=2 data.threads=2") + Flags{"--workers", "2"},
      set("parallel.zero_stage=3 parallel.backend=gloo model.recompute=true"),
      set("parallel.zero_stage=2 parallel.backend=gloo parallel.overlap=on data.threads=0") +
          Flags{"--launch", "threads"},
      set("parallel.zero_stage=3 parallel.backend=gloo") + Flags{"--workers", "2"},
      set("parallel.zero_stage=3 model.recompute=true") +
          Flags{"--resume", "run/checkpoints/step-00000010"},
      set("parallel.zero_stage=0") +
          Flags{"--workers", "1", "--resume", "run/checkpoints/step-00000040"},
  };
  Sample sample("placements of models");
  for (const std::string model : {"resnet", "gpt"}) {
    INFO(model);
    const TemporaryFolder folder;
    const Flags flags = model_flags(folder, model);
    const auto expected = outcome(folder, "run", flags);
    for (std::size_t i = 0; i < placements.size(); ++i) {
      if (!sample.next()) continue;
      INFO("placement " << i);
      // What is recomputed is what would have been kept: the key may change, also on the way.
      CHECK(outcome(folder, str(i), flags + placements[i]) == expected);
    }
  }
}
