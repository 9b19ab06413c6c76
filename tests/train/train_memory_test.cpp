// The memory of a training over many steps.

#include <cstdint>
#include <string>
#include <vector>

#include "tests/catch.h"
#include "tests/support/settings.h"
#include "tests/support/temporary_folder.h"
#include "tests/train/train_in_fork.h"
#include "tests/train/train_program.h"

using namespace lockstep;
using namespace lockstep::testing;

TEST_CASE("replicas take hardly more memory after hundreds of steps than after two", "[slow]") {
  const std::string synthetic =
      "data: {name: synthetic, task: classification, samples: 2000, batch_size: 4}\n";
  const std::string images = "data: {name: fashion_mnist, batch_size: 2}\n";
  struct Case {
    std::string name, model, data, keys;
  };
  const std::vector<Case> cases{
      {"mlp 300", "mlp, hidden: [300, 300]", synthetic, ""},
      {"mlp 600, threads", "mlp, hidden: [600, 600]", synthetic, " parallel.launch=threads"},
      {"mlp 900", "mlp, hidden: [900, 900]", synthetic, ""},
      {"mlp 600, gloo", "mlp, hidden: [600, 600]", synthetic, " parallel.backend=gloo"},
      {"mlp 600, stage 2", "mlp, hidden: [600, 600]", synthetic, " parallel.zero_stage=2"},
      {"cnn", "cnn, channels: [2, 4], dense: [900]", images, ""},
      {"resnet", "resnet, depth: 8, width: 4", images, ""},
      {"gpt", "gpt, layers: 1, heads: 2, width: 128",
       "data: {name: text, path: text, context: 16, batch_size: 4}\n", ""}};
  const TemporaryFolder folder;
  folder.write("text", std::string(100'000, 'x'));
  for (const Case& each : cases) {
    folder.write(each.name + ".yaml", "model: {name: " + each.model + "}\n" + each.data +
                                          "optimizer: {name: adam, lr: 0.001}\n"
                                          "parallel: {replicas: 2, threads_per_replica: 1}\n"
                                          "trainer: {seed: 0, log_every: 10, eval_every: 0}\n");
    // The bytes that both replicas have more than at the start.
    const auto resident = [&](std::int64_t steps) {
      const std::string run = each.name + " " + std::to_string(steps);
      must_train(folder.path(), Flags{"--config", each.name + ".yaml", "--output", run} +
                                    set("trainer.steps=" + std::to_string(steps) + each.keys));
      return result_of(folder.path() / run)["memory"];
    };
    const auto first = resident(2);
    const auto last = resident(500 * rounds());
    INFO(each.name << "\n" << first.dump(1) << "\n" << last.dump(1));
    constexpr double kMore = 20e6;
    CHECK(last["resident"].get<double>() < first["resident"].get<double>() + kMore);
  }
}
