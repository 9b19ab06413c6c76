// Gradients whose sums over the replicas, but not their means, are too large for float32.

#include <cmath>
#include <cstdint>
#include <cstring>
#include <limits>
#include <random>
#include <string>
#include <vector>

#include <ATen/TensorOperators.h>
#include <ATen/ops/empty.h>
#include <ATen/ops/full.h>
#include <ATen/ops/isfinite.h>
#include <ATen/ops/zeros.h>

#include "framework/axes/environment.h"
#include "framework/training/data_parallel.h"
#include "tests/catch.h"
#include "tests/support/message_of.h"
#include "tests/support/settings.h"
#include "tests/training/placements.h"
#include "tests/training/zero_jobs.h"

using namespace lockstep;
using namespace lockstep::testing;

namespace {

constexpr std::int64_t kSlopeSize = 3000;  // not sent as a short message

// A loss with any gradient: 0 for values of 0.
struct Slope : torch::nn::Module {
  Tensor loss(const Tensor& gradient) { return (values * gradient).sum(); }
  Tensor values = register_parameter("values", at::zeros({kSlopeSize}));
};

struct Placed {
  LaunchOptions job;
  std::string name;
};

std::vector<Placed> placements() {
  std::vector<Placed> all;
  for (const std::int64_t replicas : {2, 3, 4}) {
    for (const Backend backend : {Backend::automatic, Backend::gloo}) {
      for (const std::int64_t workers : {1, 2, 4}) {
        if (workers > replicas) continue;
        all.push_back({threads(replicas, backend, workers == 4 ? 0 : workers),
                       str(replicas, " replicas, ", workers, " workers, backend ",
                           static_cast<int>(backend))});
      }
    }
    all.push_back({threads(replicas, Backend::automatic), str(replicas, " replicas")});
  }
  return all;
}

// Any finite float, of any exponent, so that means are of the smallest and of the largest.
Tensor any_floats(std::int64_t replica) {
  std::mt19937 random(static_cast<std::uint32_t>(seed() + static_cast<std::uint64_t>(replica)));
  Tensor floats = at::empty({kSlopeSize});
  for (std::int64_t i = 0; i < kSlopeSize; ++i) {
    std::uint32_t bits = static_cast<std::uint32_t>(random());
    if ((bits >> 23 & 0xffU) == 0xffU) bits &= ~(1U << 23);
    std::memcpy(floats.data_ptr<float>() + i, &bits, sizeof(bits));
  }
  return floats;
}

// The canonical tree of up to four, each times 2^-2 (2^-1 of two), and then divided by the rest.
Tensor safe_mean_of_all(std::int64_t replicas) {
  const double scale = replicas == 2 ? 0.5 : 0.25;
  const auto scaled = [&](std::int64_t replica) { return any_floats(replica) * scale; };
  Tensor sum = scaled(0) + scaled(1);
  if (replicas == 3) sum = sum + scaled(2);
  if (replicas == 4) sum = sum + (scaled(2) + scaled(3));
  return sum / (static_cast<double>(replicas) * scale);
}

void expect_mean(const Tensor& actual, const Tensor& expected, const std::string& what) {
  expect(actual.equal(expected), what + ": another mean");
}

}  // namespace

TEST_CASE("the mean of finite gradients is finite, with the same bits in all placements") {
  INFO("LOCKSTEP_SEED=" << seed());
  for (const auto& [job, name] : placements()) {
    INFO(name);
    const std::int64_t replicas = job.replicas;
    const Tensor expected = safe_mean_of_all(replicas);
    REQUIRE(at::isfinite(expected).all().item<bool>());
    const auto train = [&] {
      const Tensor own = any_floats(axis_index("data"));
      {
        Slope model;
        DataParallel parallel(model);
        parallel.backward(model.loss(own));
        expect_mean(model.values.grad(), expected, "DataParallel");
        model.values.grad().zero_();
        parallel.backward(model.loss(own));
        expect_mean(model.values.grad(), expected, "DataParallel, in place");
        model.values.mutable_grad().reset();
        parallel.accumulate(model.loss(own * 0.5));
        parallel.backward(model.loss(own * 0.5));
        expect(at::isfinite(model.values.grad()).all().item<bool>(), "two microbatches");
      }
      for (const int stage : {0, 1, 2, 3}) {
        for (const Overlap overlap : {Overlap::off, Overlap::on}) {
          Slope model;
          ZeroTrainer trainer(model, {.stage = stage, .overlap = overlap});
          trainer.backward(model.loss(own));
          trainer.visit_gradients([&](const std::string&, const Tensor& mean) {
            expect_mean(mean, expected, str("stage ", stage));
          });
          expect(!trainer.step(1e-40).skipped, "a skipped step");
        }
        Slope model;
        ZeroTrainer trainer(model, {.stage = stage, .compression = Compression::bf16});
        const Tensor large = at::full({kSlopeSize}, 3e38);
        trainer.backward(model.loss(large));
        trainer.visit_gradients([&](const std::string&, const Tensor& mean) {
          expect(mean.allclose(large, 1e-2), str("compressed, stage ", stage));
        });
      }
      return true;
    };
    for (const bool done : results_of_job(job, train)) CHECK(done);
  }
}

TEST_CASE("gradients that are not finite are blamed on the rate only if the loss has grown") {
  const auto blamed = [](double first, double second) {
    return message_of<NonFiniteStep>([&] {
      (void)result_of_map(1, [&] {
        Slope model;
        ZeroTrainer trainer(model, {.axis_name = "i"});
        trainer.backward((model.values + first).mean());
        trainer.step(0);
        trainer.backward(model.values.sqrt().mean() + second);  // of slope infinity
        trainer.step(0);
        return Parameters{};
      });
    });
  };
  const std::string place = "the gradient of parameter 'values' is not finite at step 2; ";
  CHECK_THAT(blamed(2, 1), ContainsSubstring(place + "look for a division by 0"));
  CHECK_THAT(blamed(2, 3), ContainsSubstring(place + "training has diverged: try a smaller"));
  CHECK_THAT(blamed(std::numeric_limits<double>::quiet_NaN(), 1),
             ContainsSubstring("the loss is not finite at step 1; look for a division by 0"));
}
