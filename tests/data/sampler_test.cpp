#include "framework/data/sampler.h"

#include <algorithm>
#include <cstdint>
#include <limits>
#include <numeric>
#include <regex>
#include <string>
#include <vector>

#include "framework/base/errors.h"
#include "framework/base/random.h"
#include "framework/base/text.h"
#include "tests/catch.h"
#include "tests/support/pages.h"

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

// The samples from `position` on to the end of its epoch, step after step and in each the replicas
// one after another.
Indices rest_of_epoch(Sampler& sampler, const SamplerOptions& options, std::int64_t position) {
  Indices order;
  const std::int64_t end = (position / options.size + 1) * options.size;
  for (; position < end; position += sampler.global_batch(position)) {
    for (std::int64_t r = 0; r < options.replicas; ++r) {
      const Indices part = sampler.indices(position, r);
      order.insert(order.end(), part.begin(), part.end());
    }
  }
  CHECK(position == end);
  return order;
}

Indices epoch_order(Sampler& sampler, const SamplerOptions& options, std::int64_t epoch) {
  return rest_of_epoch(sampler, options, sampler.start_of_epoch(epoch));
}

// The part of an order that begins at `first`.
Indices from(const Indices& order, std::int64_t first) {
  return {order.begin() + first, order.end()};
}

// What must hold for the sizes of the shards of the step at any position.
void check_step(Sampler& sampler, const SamplerOptions& options, std::int64_t position) {
  const std::int64_t full = options.batch_size * options.replicas;
  const std::int64_t expected = std::min(full, options.size - position % options.size);
  CHECK(sampler.global_batch(position) == expected);
  std::int64_t sum = 0;
  std::int64_t smallest = options.batch_size;
  std::int64_t largest = 0;
  for (std::int64_t r = 0; r < options.replicas; ++r) {
    const auto count = static_cast<std::int64_t>(sampler.indices(position, r).size());
    sum += count;
    smallest = std::min(smallest, count);
    largest = std::max(largest, count);
  }
  CHECK(sum == expected);
  CHECK(largest <= options.batch_size);
  CHECK(largest - smallest <= 1);
  if (expected == full) CHECK(smallest == options.batch_size);
}

// Steps taken one by one from `position` until they have reached `end`.
std::int64_t counted_steps(const Sampler& sampler, std::int64_t position, std::int64_t end) {
  std::int64_t steps = 0;
  for (; position < end; position += sampler.global_batch(position)) ++steps;
  return steps;
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
        for (std::int64_t position = 0; position < size; position += full) {
          check_step(sampler, options, position);
        }
        for (std::int64_t epoch = 0; epoch < 3; ++epoch) {
          Indices order = epoch_order(sampler, options, epoch);
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
      const SamplerOptions options{
          .size = 50, .batch_size = batch_size, .replicas = replicas, .seed = 9};
      Sampler sampler(options);
      for (const std::int64_t epoch : {0, 1, 0, 7, 7, 1}) {
        CHECK(epoch_order(sampler, options, epoch) ==
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
  for (std::int64_t epoch = 0; epoch < 3; ++epoch) (void)epoch_order(first, options, epoch);
  CHECK(second.indices(2 * 41 + 24, 1) == first.indices(2 * 41 + 24, 1));
  CHECK(second.indices(36, 0) == first.indices(36, 0));
}

TEST_CASE("from any position on, whatever the batch, a run takes what is left of the epoch") {
  const std::int64_t size = 23;
  const Indices order = permutation(Key(5).fold("sampler").fold(1), size);
  for (const std::int64_t batch_size : {1, 3, 4, 100}) {
    for (const std::int64_t replicas : {1, 2, 5}) {
      const SamplerOptions options{
          .size = size, .batch_size = batch_size, .replicas = replicas, .seed = 5};
      Sampler resumed(options);
      for (std::int64_t position = size; position < 2 * size; ++position) {
        CAPTURE(batch_size, replicas, position);
        check_step(resumed, options, position);
        CHECK(rest_of_epoch(resumed, options, position) == from(order, position - size));
      }
    }
  }
}

TEST_CASE("the steps between two positions are those of counting") {
  for (const std::int64_t size : {1, 2, 7, 12}) {
    for (const std::int64_t full : {1, 2, 3, 4, 5, 12, 30}) {
      const Sampler sampler({.size = size, .batch_size = full});
      CHECK(sampler.steps_between(0, size) == sampler.steps_per_epoch());
      for (std::int64_t end = 0; end <= 4 * size; ++end) {
        for (std::int64_t position = 0; position <= end; ++position) {
          CAPTURE(size, full, position, end);
          CHECK(sampler.steps_between(position, end) == counted_steps(sampler, position, end));
        }
      }
    }
  }
}

TEST_CASE("the largest positions are exact") {
  const std::int64_t most = std::numeric_limits<std::int64_t>::max();
  const Sampler single({.size = 1});
  CHECK(single.start_of_epoch(most) == most);
  CHECK(single.steps_between(0, most) == most);
  CHECK(single.steps_between(most, most) == 0);
  CHECK(single.global_batch(most) == 1);

  // A billion epochs of four billion samples. The last step of each is of four.
  const std::int64_t size = 4'000'000'000;
  const Sampler sampler({.size = size, .batch_size = 9, .replicas = 4});
  const std::int64_t end = sampler.start_of_epoch(1'000'000'000);
  CHECK(end == 4'000'000'000'000'000'000);
  CHECK(sampler.steps_per_epoch() == 111'111'112);
  CHECK(sampler.steps_between(0, end) == 111'111'112'000'000'000);
  CHECK(sampler.steps_between(size - 37, end) == 2 + 999'999'999 * sampler.steps_per_epoch());
  CHECK(sampler.global_batch(end - 4) == 4);

  const Sampler largest({.size = most, .batch_size = 2});
  CHECK(largest.steps_between(1, most) == most / 2);
  CHECK(largest.start_of_epoch(1) == most);
}

TEST_CASE("without shuffling every epoch is in the dataset's order") {
  const SamplerOptions options{
      .size = 11, .batch_size = 2, .replicas = 3, .seed = 1, .shuffle = false};
  Sampler sampler(options);
  for (const std::int64_t epoch : {0, 1, 5}) {
    CHECK(epoch_order(sampler, options, epoch) == counted(11));
  }
  CHECK(sampler.indices(0, 1) == Indices{2, 3});
  // Five are left for the last step: two, two and one.
  CHECK(sampler.global_batch(6) == 5);
  CHECK(sampler.indices(6, 0) == Indices{6, 7});
  CHECK(sampler.indices(6, 1) == Indices{8, 9});
  CHECK(sampler.indices(6, 2) == Indices{10});
}

TEST_CASE("without an epoch's last samples all steps are full, whatever was left out before") {
  for (const std::int64_t size : {6, 7, 13, 23}) {
    for (const std::int64_t batch_size : {1, 2, 3}) {
      for (const std::int64_t replicas : {1, 2}) {
        CAPTURE(size, batch_size, replicas);
        SamplerOptions options{
            .size = size, .batch_size = batch_size, .replicas = replicas, .seed = 5};
        Sampler all(options);
        options.drop_last = true;
        Sampler sampler(options);
        const std::int64_t full = batch_size * replicas;
        CHECK(sampler.steps_per_epoch() == size / full);
        // From any position, as after a resume with another batch.
        for (std::int64_t first = 0; first < size; ++first) {
          std::int64_t steps = 0;
          for (std::int64_t position = first; position < 4 * size; ++steps) {
            CHECK(sampler.steps_between(first, position) == steps);
            const std::int64_t start = sampler.start_of_step(position);
            const bool has_room = size - position % size >= full;
            CHECK(start == (has_room ? position : (position / size + 1) * size));
            CHECK(sampler.global_batch(position) == full);
            for (std::int64_t r = 0; r < replicas; ++r) {
              CHECK(sampler.indices(position, r) == all.indices(start, r));
            }
            position = sampler.end_of_step(position);
            CHECK(position == start + full);
            if (position > 3 * size) break;
          }
          const std::int64_t rest = (size - first) / full;
          CHECK(sampler.steps_between(first, 3 * size) == rest + 2 * (size / full));
        }
      }
    }
  }
  CHECK_THROWS_WITH(Sampler({.size = 5, .batch_size = 3, .replicas = 2, .drop_last = true}),
                    "sampler: drop_last leaves nothing of 5 samples where a step takes 6");
}

TEST_CASE("replicas go without where the last step has fewer samples") {
  Sampler sampler({.size = 9, .batch_size = 2, .replicas = 4, .shuffle = false});
  CHECK(sampler.steps_per_epoch() == 2);
  CHECK(sampler.indices(8, 0) == Indices{8});
  for (const std::int64_t r : {1, 2, 3}) CHECK(sampler.indices(8, r).empty());
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
  CHECK(largest.indices(0, 0).size() == 4);

  Sampler sampler({.size = 9, .batch_size = 2, .replicas = 2});
  CHECK_THROWS_AS(sampler.indices(-1, 0), lockstep::ValueError);
  CHECK_THROWS_WITH(sampler.indices(-1, 0), "sampler: position is -1, but must be at least 0");
  CHECK_THROWS_WITH(sampler.global_batch(-9), "sampler: position is -9, but must be at least 0");
  CHECK_THROWS_WITH(sampler.indices(0, 2), "sampler: replica 2 is outside 0 ... 1");
  CHECK_THROWS_WITH(sampler.indices(0, -1), "sampler: replica -1 is outside 0 ... 1");
  CHECK_THROWS_WITH(sampler.start_of_epoch(-1), "sampler: epoch is -1, but must be at least 0");
  CHECK_THROWS_WITH(sampler.start_of_epoch(most / 9 + 1),
                    "sampler: epoch 1024819115206086201 times size 9 is too large for a position");
  CHECK_THROWS_WITH(sampler.steps_between(-1, 9),
                    "sampler: position is -1, but must be at least 0");
  CHECK_THROWS_WITH(sampler.steps_between(10, 9), "sampler: position 10 is after the end 9");
}

TEST_CASE("the page says which samples each replica takes") {
  const std::string page = lockstep::testing::read_page("framework/training/README.md").text;
  const std::regex row("\n\\| (\\d+) \\|([0-9, |]+)\\| epoch");
  Sampler sampler({.size = 10, .batch_size = 2, .replicas = 3, .shuffle = false});
  std::int64_t position = 0;
  for (std::sregex_iterator at(page.begin(), page.end(), row); at != std::sregex_iterator(); ++at) {
    CHECK(std::stoll((*at)[1]) == position);
    std::string taken;
    for (std::int64_t replica = 0; replica < 3; ++replica) {
      taken += " " + lockstep::join(sampler.indices(position, replica)) + " |";
    }
    CHECK((*at)[2].str() + "|" == taken);
    position = sampler.end_of_step(position);
  }
  CHECK(position == 16);
}
