#include <cstdint>
#include <fstream>
#include <functional>
#include <memory>
#include <string>

#include <ATen/CPUGeneratorImpl.h>
#include <ATen/ops/empty.h>
#include <torch/nn/module.h>

#include "framework/base/errors.h"
#include "framework/base/random.h"
#include "framework/base/text.h"
#include "framework/checkpoint/checkpoint.h"
#include "framework/launch/launch.h"
#include "framework/training/memory_prediction.h"
#include "framework/training/zero.h"
#include "tests/catch.h"
#include "tests/support/programs.h"
#include "tests/support/temporary_folder.h"

using namespace lockstep;
using namespace lockstep::testing;

namespace {

constexpr std::int64_t kMiB = 1 << 20;
constexpr std::int64_t kSize = kMiB;  // elements of a parameter
constexpr int kBlocks = 40;
constexpr std::int64_t kWhole = 4 * kSize * kBlocks;
constexpr std::int64_t kSlack = 12 * kMiB;

class Part : public Block {
 public:
  explicit Part(const at::Tensor& values) { register_parameter("w", values); }
  at::Tensor forward(const at::Tensor& input) override { return input; }
};

at::Tensor values_of(const std::string& name, std::int64_t size) {
  return at::empty({size}).uniform_(-1, 1,
                                    at::detail::createCPUGenerator(Key(1).fold(name).bits()));
}

class Parts : public torch::nn::Module {
 public:
  Parts(std::int64_t size, bool is_deferred) {
    for (int i = 0; i < kBlocks; ++i) {
      const std::string name = "part" + std::to_string(i);
      register_module(name,
                      std::make_shared<Part>(is_deferred ? at::empty({size}, at::device(at::kMeta))
                                                         : values_of(name + ".w", size)));
    }
  }
};

// A line of /proc/self/status, in bytes.
std::int64_t bytes_of(const std::string& key) {
  std::ifstream file("/proc/self/status");
  for (std::string line; std::getline(file, line);) {
    if (line.starts_with(key + ":")) return std::stoll(line.substr(key.size() + 1)) * 1024;
  }
  throw Error("no " + key);
}

ZeroOptions stage3(std::int64_t size) {
  return {.stage = 3, .optimizer = {.name = "sgd"}, .initialize = [size](const std::string& name) {
            return values_of(name, size);
          }};
}

using Work = std::function<void(ZeroTrainer&)>;

// Runs four replicas in processes over Gloo: each makes a trainer and does `work`. Whether none of
// them takes more than `most` bytes beside what it had.
bool stays_within(std::int64_t most, bool is_deferred, const Work& work) {
  const Ended end = run_forked([&] {
    return launch(
        [&] {
          {
            // Whatever is there once, such as connections.
            Parts small(64, true);
            const ZeroTrainer trainer(small, stage3(64));
          }
          const std::int64_t before = bytes_of("VmHWM");
          Parts model(kSize, is_deferred);
          ZeroTrainer trainer(model, stage3(kSize));
          work(trainer);
          const std::int64_t grown = bytes_of("VmHWM") - before;
          if (grown > most) throw Error(str("the replica has grown by ", grown, " bytes"));
        },
        {.replicas = 4, .backend = Backend::gloo});
  });
  INFO(end.err);
  const bool has_grown = end.err.find("the replica has grown by ") != std::string::npos;
  CHECK(end.status == (has_grown ? 1 : 0));
  return !has_grown;
}

}  // namespace

TEST_CASE("at start, load and save a replica has no more than its share and one parameter") {
  Parts shapes(kSize, /*is_deferred=*/true);
  const ReplicaPlacement placement{.replicas = 4, .shares_memory = false};
  const MemoryUse use = predicted_memory(shapes, stage3(kSize), placement).largest;
  const std::int64_t copy =
      predicted_checkpoint(shapes, stage3(kSize), placement).largest.checkpoint;
  CHECK(use.parameters == kWhole / 4);
  CHECK(use.initialization == 4 * kSize);
  CHECK(copy >= kWhole / 4);
  CHECK(copy <= kWhole / 4 + 8 * (kBlocks + 1));  // counts of steps
  const std::int64_t start = use.at_start() + kSlack;
  REQUIRE(start < kWhole);
  const Work nothing = [](ZeroTrainer&) {};
  CHECK_FALSE(stays_within(start, /*is_deferred=*/false, nothing));
  CHECK(stays_within(start, /*is_deferred=*/true, nothing));

  const TemporaryFolder folder;
  REQUIRE(start + copy < kWhole);
  CHECK(stays_within(start + copy, true, [&](ZeroTrainer& trainer) {
    save_checkpoint(folder.path(), {&trainer}, {.step = 1});
  }));
  CHECK(stays_within(start, true, [&](ZeroTrainer& trainer) {
    (void)load_checkpoint(*newest_checkpoint(folder.path()), {&trainer});
  }));
}
