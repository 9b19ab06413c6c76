#include <cstdint>
#include <memory>
#include <vector>

#include "framework/base/errors.h"
#include "framework/data/data.h"
#include "framework/data/sampler.h"
#include "tests/catch.h"
#include "tests/data/same_batches.h"

using lockstep::Sampler;
using lockstep::testing::floats_of;

namespace {

std::shared_ptr<const lockstep::Dataset> pmean_example(std::int64_t replicas) {
  return lockstep::load_data(lockstep::keys::Picked("pmean_example"), {.replicas = replicas}).train;
}

}  // namespace

TEST_CASE("the pmean example's samples are x and 2x + 0.5") {
  const auto set = pmean_example(2);
  CHECK(set->size() == 8);
  CHECK(set->type() == lockstep::value_sample({1}, 1));
  const auto batch = lockstep::testing::whole(*set);
  CHECK(batch.inputs.scalar_type() == at::kFloat);
  CHECK(batch.targets.scalar_type() == at::kFloat);
  CHECK(batch.inputs.sizes().vec() == std::vector<std::int64_t>{8, 1});
  CHECK(batch.targets.sizes().vec() == std::vector<std::int64_t>{8, 1});
  CHECK(floats_of(batch.inputs) == std::vector<float>{0, 1, 2, 3, 4, 5, 6, 7});
  CHECK(floats_of(batch.targets) ==
        std::vector<float>{0.5F, 2.5F, 4.5F, 6.5F, 8.5F, 10.5F, 12.5F, 14.5F});

  const std::vector<std::int64_t> some{5, 0, 5};
  CHECK(floats_of(set->batch(some).inputs) == std::vector<float>{5, 0, 5});
  CHECK(floats_of(set->batch(some).targets) == std::vector<float>{10.5F, 0.5F, 10.5F});
  CHECK(set->batch({}).inputs.sizes().vec() == std::vector<std::int64_t>{0, 1});
  CHECK(set->batch({}).targets.sizes().vec() == std::vector<std::int64_t>{0, 1});
}

TEST_CASE("in order, replica r of the pmean example has samples 4r to 4r+3 in its only step") {
  for (const std::int64_t replicas : {1, 2, 3, 4, 5, 8}) {
    const auto set = pmean_example(replicas);
    Sampler sampler({.size = set->size(), .batch_size = 4, .replicas = replicas, .shuffle = false});
    CHECK(sampler.steps_per_epoch() == 1);
    for (std::int64_t r = 0; r < replicas; ++r) {
      CHECK(sampler.indices(0, r) ==
            std::vector<std::int64_t>{4 * r, 4 * r + 1, 4 * r + 2, 4 * r + 3});
    }
  }
}

TEST_CASE("the pmean example's errors give the numbers") {
  const auto set = pmean_example(1);
  const std::vector<std::int64_t> beyond{4};
  CHECK_THROWS_WITH(set->batch(beyond), ContainsSubstring("index 4 (number 0 of 1 in the batch) is "
                                                          "outside 0 ... 3"));
  CHECK_THROWS_AS(pmean_example(1048577), lockstep::ValueError);
  CHECK_THROWS_WITH(pmean_example(1048577),
                    "pmean_example: replicas is 1048577, but must be 1 ... 1048576");
}

TEST_CASE("the last targets of the largest pmean example are exact") {
  const auto set = pmean_example(1048576);
  const std::vector<std::int64_t> last{4194302, 4194303};
  CHECK(floats_of(set->batch(last).targets) == std::vector<float>{8388604.5F, 8388606.5F});
  CHECK(static_cast<double>(set->batch(last).targets.data_ptr<float>()[1]) == 8388606.5);
}
