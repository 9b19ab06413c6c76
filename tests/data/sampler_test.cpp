#include "framework/data/sampler.h"

#include <algorithm>
#include <cstdint>
#include <limits>
#include <numeric>
#include <vector>

#include "framework/base/errors.h"
#include "framework/base/random.h"
#include "tests/catch.h"

using lockstep::Key;
using lockstep::Sampler;
using lockstep::SamplerOptions;

namespace {

using Indices = std::vector<std::int64_t>;

Indices counted(std::int64_t size) {
  Indices all(static_cast<std::size_t>(size));
  std::iota(all.begin(), all.end(), 0);
  return all;
}

// The samples of an epoch, step after step and in each the replicas one after another.
Indices epoch_order(Sampler& sampler, std::int64_t replicas, std::int64_t epoch) {
  Indices order;
  for (std::int64_t step = 0; step < sampler.steps_per_epoch(); ++step) {
    for (std::int64_t r = 0; r < replicas; ++r) {
      const Indices part = sampler.indices(epoch, step, r);
      order.insert(order.end(), part.begin(), part.end());
    }
  }
  return order;
}

// What must hold for the sizes of one step's shards.
void check_step(Sampler& sampler, const SamplerOptions& options, std::int64_t step) {
  const std::int64_t full = options.batch_size * options.replicas;
  const bool last = step == sampler.steps_per_epoch() - 1;
  const std::int64_t expected = last ? options.size - step * full : full;
  CHECK(sampler.global_batch(step) == expected);
  std::int64_t sum = 0;
  std::int64_t smallest = options.batch_size;
  std::int64_t largest = 0;
  for (std::int64_t r = 0; r < options.replicas; ++r) {
    const auto count = static_cast<std::int64_t>(sampler.indices(0, step, r).size());
    sum += count;
    smallest = std::min(smallest, count);
    largest = std::max(largest, count);
  }
  CHECK(sum == expected);
  CHECK(largest <= options.batch_size);
  CHECK(largest - smallest <= 1);
  if (!last) CHECK(smallest == options.batch_size);
}

}  // namespace

TEST_CASE("every epoch uses each sample exactly once, whatever the sizes") {
  for (const std::int64_t size : {1, 2, 3, 7, 8, 16, 23, 100}) {
    for (const std::int64_t batch_size : {1, 2, 3, 5, 8, 200}) {
      for (const std::int64_t replicas : {1, 2, 3, 4, 5, 8}) {
        CAPTURE(size, batch_size, replicas);
        const SamplerOptions options{
            .size = size, .batch_size = batch_size, .replicas = replicas, .seed = 5};
        Sampler sampler(options);
        const std::int64_t full = batch_size * replicas;
        CHECK(sampler.steps_per_epoch() == (size + full - 1) / full);
        for (std::int64_t step = 0; step < sampler.steps_per_epoch(); ++step) {
          check_step(sampler, options, step);
        }
        for (std::int64_t epoch = 0; epoch < 3; ++epoch) {
          Indices order = epoch_order(sampler, replicas, epoch);
          std::sort(order.begin(), order.end());
          CHECK(order == counted(size));
        }
      }
    }
  }
}

TEST_CASE("an epoch's order is a function of seed and epoch alone") {
  const auto expected = [](std::uint64_t seed, std::uint64_t epoch) {
    return permutation(Key(seed).fold("sampler").fold(epoch), 50);
  };
  // Not of the batch size or the number of replicas either.
  for (const std::int64_t batch_size : {1, 4, 7}) {
    for (const std::int64_t replicas : {1, 2, 3}) {
      Sampler sampler({.size = 50, .batch_size = batch_size, .replicas = replicas, .seed = 9});
      for (const std::int64_t epoch : {0, 1, 0, 7, 7, 1}) {
        CHECK(epoch_order(sampler, replicas, epoch) ==
              expected(9, static_cast<std::uint64_t>(epoch)));
      }
    }
  }
  CHECK(expected(9, 0) != expected(9, 1));
  CHECK(expected(9, 0) != expected(10, 0));
}

TEST_CASE("a step may be asked for at once, without those before it") {
  const SamplerOptions options{.size = 41, .batch_size = 3, .replicas = 2, .seed = 3};
  Sampler first(options);
  Sampler second(options);
  for (std::int64_t epoch = 0; epoch < 3; ++epoch) (void)epoch_order(first, 2, epoch);
  CHECK(second.indices(2, 4, 1) == first.indices(2, 4, 1));
  CHECK(second.indices(0, 6, 0) == first.indices(0, 6, 0));
}

TEST_CASE("without shuffling every epoch is in the dataset's order") {
  Sampler sampler({.size = 11, .batch_size = 2, .replicas = 3, .seed = 1, .shuffle = false});
  for (const std::int64_t epoch : {0, 1, 5}) CHECK(epoch_order(sampler, 3, epoch) == counted(11));
  CHECK(sampler.indices(0, 0, 1) == Indices{2, 3});
  // Five are left for the last step: two, two and one.
  CHECK(sampler.global_batch(1) == 5);
  CHECK(sampler.indices(0, 1, 0) == Indices{6, 7});
  CHECK(sampler.indices(0, 1, 1) == Indices{8, 9});
  CHECK(sampler.indices(0, 1, 2) == Indices{10});
}

TEST_CASE("replicas go without where the last step has fewer samples") {
  Sampler sampler({.size = 9, .batch_size = 2, .replicas = 4, .shuffle = false});
  CHECK(sampler.steps_per_epoch() == 2);
  CHECK(sampler.indices(0, 1, 0) == Indices{8});
  for (const std::int64_t r : {1, 2, 3}) CHECK(sampler.indices(0, 1, r).empty());
}

TEST_CASE("the sampler refuses what cannot be") {
  CHECK_THROWS_AS(Sampler({.size = 0}), lockstep::ValueError);
  CHECK_THROWS_WITH(Sampler({.size = 0}), "sampler: size is 0, but must be at least 1");
  CHECK_THROWS_WITH(Sampler({.size = 4, .batch_size = 0}),
                    "sampler: batch_size is 0, but must be at least 1");
  CHECK_THROWS_WITH(Sampler({.size = 4, .batch_size = 1, .replicas = -2}),
                    "sampler: replicas is -2, but must be at least 1");
  const std::int64_t most = std::numeric_limits<std::int64_t>::max();
  CHECK_THROWS_WITH(Sampler({.size = 4, .batch_size = most, .replicas = 2}),
                    "sampler: batch_size 9223372036854775807 times replicas 2 is too large for a "
                    "batch");
  Sampler largest({.size = 4, .batch_size = most});
  CHECK(largest.steps_per_epoch() == 1);
  CHECK(largest.indices(0, 0, 0).size() == 4);

  Sampler sampler({.size = 9, .batch_size = 2, .replicas = 2});
  CHECK_THROWS_AS(sampler.indices(0, 3, 0), lockstep::ValueError);
  CHECK_THROWS_WITH(sampler.indices(0, 3, 0), "sampler: step 3 is outside 0 ... 2");
  CHECK_THROWS_WITH(sampler.indices(0, -1, 0), "sampler: step -1 is outside 0 ... 2");
  CHECK_THROWS_WITH(sampler.indices(0, 0, 2), "sampler: replica 2 is outside 0 ... 1");
  CHECK_THROWS_WITH(sampler.indices(0, 0, -1), "sampler: replica -1 is outside 0 ... 1");
  CHECK_THROWS_WITH(sampler.indices(-1, 0, 0), "sampler: epoch is -1, but must be at least 0");
  CHECK_THROWS_WITH(sampler.global_batch(3), "sampler: step 3 is outside 0 ... 2");
}
