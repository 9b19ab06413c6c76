#include <map>
#include <memory>
#include <source_location>
#include <string>
#include <tuple>
#include <utility>

#include <ATen/ops/ones.h>
#include <c10/core/GradMode.h>

#include "framework/axes/environment.h"
#include "framework/base/errors.h"
#include "models/gpt.h"
#include "models/mlp.h"
#include "models/model.h"
#include "tests/catch.h"
#include "tests/support/message_of.h"
#include "tests/training/zero_jobs.h"

using namespace lockstep;
using namespace lockstep::testing;

namespace {

struct Microbatches {
  std::int64_t count;
  bool reduces_every;
};

// How often (N-1)/N of the parameters' bytes are sent a step. Stage 3 gathers in each forward and
// each backward, and not after the update.
double passes(int stage, const Microbatches& microbatches) {
  const auto m = static_cast<double>(microbatches.count);
  const double reductions = microbatches.reduces_every ? m : 1;
  if (stage == 0) return 2 * reductions;
  return reductions + (stage == 3 ? 2 * m : 1);
}

// How many this replica's worker has sent so far.
double bytes_sent() {
  const AxisCall call{"test", "data", std::source_location::current()};
  return static_cast<double>(replicas_of(call, {}, GroupSizes::equal).ledger().bytes_sent.load());
}

}  // namespace

TEST_CASE("bytes over a network are those of the stages, and gathered blocks at most two") {
  const Quiet quiet;
  constexpr std::int64_t kReplicas = 4;
  constexpr std::int64_t kLarge = 40'099;
  for (const int stage : {0, 1, 2, 3}) {
    for (const Microbatches& microbatches : {Microbatches{1, false}, {2, false}, {2, true}}) {
      const auto found = result_of_job(threads(kReplicas, Backend::gloo), [&] {
        OddModel model(kLarge);
        ZeroOptions options = adam(stage);
        options.accumulate = microbatches.count;
        options.reduce_every_microbatch = microbatches.reduces_every;
        ZeroTrainer trainer(model, options);
        train_step(trainer, model, 0, microbatches.count, "data");
        const double before = bytes_sent();
        train_step(trainer, model, 1, microbatches.count, "data");
        const double by_step = bytes_sent() - before;
        double bytes = 0;
        for (const auto& item : model.named_parameters()) {
          if (item.key() == "same_scale" || item.key() == "frozen") continue;
          bytes += static_cast<double>(item.value().numel() * item.value().element_size());
        }
        return std::tuple(by_step, trainer.memory(), bytes);
      });
      const auto& [sent, memory, all] = found;
      const double expected = passes(stage, microbatches) * (kReplicas - 1) / kReplicas * all;
      INFO("stage " << stage << ", " << microbatches.count << " microbatches: " << sent << " of "
                    << expected << " bytes");
      CHECK(sent > 0.995 * expected);
      CHECK(sent < 1.01 * expected + 20'000);
      if (stage != 3) continue;
      // The two largest blocks gathered and, where no sum of microbatches is kept, staged.
      const double two_blocks = 4.0 * (8 * kLarge + 7 + 7 * kLarge + 3 + 8 * 256);
      const bool is_staged = microbatches.count == 1 || microbatches.reduces_every;
      CHECK(static_cast<double>(memory.communication) > 4.0 * 8 * kLarge);
      CHECK(static_cast<double>(memory.communication) < (is_staged ? 2 : 1) * two_blocks);
      CHECK(static_cast<double>(memory.parameters) < 1.1 * all / kReplicas + 20'000);
    }
  }
}

TEST_CASE("a block that runs twice is gathered for its runs, and no block for nothing") {
  const Quiet quiet;
  constexpr std::int64_t kReplicas = 4;
  const auto [sent, bytes] = result_of_job(threads(kReplicas, Backend::gloo), [] {
    const auto model =
        std::make_shared<Gpt>(GptOptions{.layers = 3, .heads = 2, .width = 64}, 8, 96, Key(1));
    ZeroTrainer trainer(*model, adam(3));
    const at::Tensor tokens = at::ones({2, 8}, at::kLong);
    double before = 0;
    for (int step = 0; step < 3; ++step) {
      before = bytes_sent();
      trainer.backward(model->forward(tokens).pow(2).mean());
      trainer.step(kRate);
    }
    const double by_step = bytes_sent() - before;
    std::map<std::string, double> parts;  // the tied embedding, the other one, and the rest
    for (const auto& item : model->named_parameters()) {
      const std::string part = item.key().substr(0, item.key().find('.'));
      parts[part] += 4.0 * static_cast<double>(item.value().numel());
    }
    return std::pair(by_step, parts);
  });
  // Each is gathered in all runs, forward and backward, and its gradient is reduced once. The last
  // norm is in no block.
  const double passes = 5 * bytes.at("wte") + 3 * bytes.at("wpe") + 3 * bytes.at("h");
  const double expected = (passes + 2 * bytes.at("ln_f")) * (kReplicas - 1) / kReplicas;
  INFO(sent << " of " << expected << " bytes");
  CHECK(sent > 0.995 * expected);
  CHECK(sent < 1.01 * expected + 20'000);
}

TEST_CASE("at most two blocks are gathered, also where forwards without a backward come between") {
  const Quiet quiet;
  struct Found {
    MemoryUse memory;
    MemoryUse visit_memory;
    std::string message;
  };
  const auto found = results_of_job(threads(2, Backend::gloo), [] {
    const auto model = make_model(keys::Picked("mlp", MlpOptions{.hidden = {160, 160, 160, 160}}),
                                  value_sample({160}, 160), 0);
    ZeroOptions options = adam(3);
    options.accumulate = 2;  // so that nothing is staged
    ZeroTrainer trainer(*model, options);
    const at::Tensor inputs = at::ones({2, 160});
    for (std::int64_t step = 0; step < 4; ++step) {
      for (int microbatch = 0; microbatch < 2; ++microbatch) {
        trainer.backward(model->forward(inputs).pow(2).mean());
      }
      trainer.step(kRate);
      const c10::AutoGradMode no_grad(false);
      for (int i = 0; i < 3; ++i) (void)model->forward(inputs);
    }
    trainer.backward(model->forward(inputs).sum());
    trainer.backward(model->forward(inputs).sum());
    const MemoryUse use = trainer.memory();
    // One block at a time is there for who visits all parameters.
    const Parameters visited = visited_parameters(trainer);
    const MemoryUse use_of_visit = trainer.memory();
    const auto whole = trainer.whole_parameters();
    if (first_difference(visited, copies(*model)) != "") throw Error("visited are others");
    return Found{use, use_of_visit, message_of<ValueError>([&] { trainer.step(kRate); })};
  });
  const std::int64_t block = 4 * (160 * 160 + 256);
  for (const auto& [memory, visit_memory, message] : found) {
    CHECK(memory.communication >= 4 * 160 * 161);
    CHECK(memory.communication <= 2 * block);
    CHECK(visit_memory.communication == memory.communication);
    CHECK_THAT(message, ContainsSubstring("ZeroTrainer::step over 'data' (zero_bytes_test.cpp:") &&
                            ContainsSubstring("): called while whole_parameters() lives"));
  }
}
