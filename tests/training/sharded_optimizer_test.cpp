#include "framework/training/sharded_optimizer.h"

#include <mutex>

#include <torch/optim/rmsprop.h>

#include "framework/base/errors.h"
#include "framework/collectives/axis_index.h"
#include "framework/launch/launch.h"
#include "framework/maps/pmap.h"
#include "framework/training/data_parallel.h"
#include "tests/catch.h"
#include "tests/support/message_of.h"
#include "tests/training/placements.h"
#include "tests/training/zero_jobs.h"

using namespace lockstep;
using namespace lockstep::testing;

namespace {

constexpr std::int64_t kSteps = 10;

std::unique_ptr<torch::optim::Optimizer> rmsprop(std::vector<at::Tensor> own) {
  return std::make_unique<torch::optim::RMSprop>(std::move(own),
                                                 torch::optim::RMSpropOptions(0.01).momentum(0.5));
}

std::map<std::string, at::Tensor> trained(const AxisNames& axis, bool sharded) {
  OddModel model;
  DataParallel parallel(model, axis);
  std::unique_ptr<ShardedOptimizer> shards;
  std::unique_ptr<torch::optim::Optimizer> whole;
  if (sharded) {
    shards = std::make_unique<ShardedOptimizer>(model.parameters(), rmsprop, axis);
  } else {
    std::vector<at::Tensor> parameters;
    for (const auto& item : model.named_parameters()) {
      if (item.key() != "same_scale") parameters.push_back(item.value());
    }
    whole = rmsprop(parameters);
  }
  for (std::int64_t step = 0; step < kSteps; ++step) {
    clear_gradients(model);
    parallel.backward(mean_loss(model, samples(step, 3 * axis_index(axis), 3)));
    if (sharded) {
      shards->step();
    } else {
      whole->step();
    }
  }
  return copies(model);
}

}  // namespace

TEST_CASE("one of LibTorch's optimizers gives the same bits sharded by whole parameters") {
  const Quiet quiet;
  for (const std::int64_t replicas : {1, 2, 3, 12}) {
    std::mutex mutex;
    std::vector<std::map<std::string, at::Tensor>> results;
    const auto add = [&](std::map<std::string, at::Tensor> result) {
      const std::lock_guard lock(mutex);
      results.push_back(std::move(result));
    };
    for (const bool sharded : {false, true}) {
      pmap([&] { add(trained("i", sharded)); }, {.axis_size = replicas})();
    }
    for (const Backend backend : {Backend::automatic, Backend::gloo}) {
      REQUIRE(launch([&] { add(trained("data", true)); }, threads(replicas, backend)) == 0);
    }
    REQUIRE(results.size() == static_cast<std::size_t>(4 * replicas));
    for (const auto& result : results) CHECK(first_difference(result, results[0]) == "");
  }
}

TEST_CASE("a graph from before a sharded step is not taken for one from after it") {
  pmap(
      [] {
        OddModel model;
        DataParallel parallel(model, "i");
        ShardedOptimizer optimizer(model.parameters(), rmsprop, "i");
        parallel.backward(mean_loss(model, samples(0, 0, 2)));
        const at::Tensor stale = mean_loss(model, samples(1, 0, 2));
        optimizer.step();
        expect_contains(message_of<c10::Error>([&] { stale.backward(); }),
                        "modified by an inplace operation");
      },
      {.axis_size = 2})();
}
