#include "framework/training/buffer_plan.h"

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <vector>

#include "framework/base/range.h"
#include "framework/base/text.h"
#include "framework/tree/flat_layout.h"
#include "tests/catch.h"

using namespace lockstep;
using training::BufferPlan;
using training::ParameterUpdates;

TEST_CASE("replicas that hold a copy together update all of it, each element once") {
  constexpr std::int64_t kReplicas = 6;
  // Of one block a shard, and of several.
  const tree::FlatLayout layout({{10, at::kFloat, 0}, {5000, at::kFloat, 1}}, {0, 1}, 1, kReplicas);
  REQUIRE(layout.buckets().size() == 2);
  for (const auto& sets :
       std::vector<std::vector<std::vector<std::int64_t>>>{{{0, 1, 2, 3, 4, 5}},
                                                           {{0, 1, 2}, {3, 4, 5}},
                                                           {{0}, {1, 2, 3, 4}, {5}},
                                                           {{0, 3, 4}, {1}, {2, 5}},
                                                           {{0}, {1}, {2}, {3}, {4}, {5}}}) {
    for (std::size_t bucket = 0; bucket < 2; ++bucket) {
      const std::int64_t size = layout.buckets()[bucket].size;
      for (const auto& holders : sets) {
        INFO("holders " << join(holders) << ", bucket of " << size);
        std::vector<int> updates(static_cast<std::size_t>(size), 0);
        for (const std::int64_t replica : holders) {
          const Range own = layout.shard_of(bucket, replica);
          std::int64_t before = -1;
          bool has_own = false;
          const BufferPlan all(layout, {.updates = ParameterUpdates::all}, replica, false);
          for (const Range& part : all.updated(bucket, holders)) {
            CHECK(part.offset > before);  // else it would be one with the part before
            before = part.offset + part.size;
            CHECK(part.offset % tree::FlatLayout::kBlock == 0);
            has_own = has_own || (part.offset <= own.offset && before >= own.offset + own.size);
            for (std::int64_t i = part.offset; i < before; ++i) {
              ++updates[static_cast<std::size_t>(i)];
            }
          }
          CHECK(has_own);  // what it saves
          const BufferPlan own_shard(layout, {.updates = ParameterUpdates::own_shard}, replica,
                                     false);
          const auto shards = own_shard.updated(bucket, holders);
          REQUIRE(shards.size() == 1);
          CHECK(shards[0].offset == own.offset);
          CHECK(shards[0].size == own.size);
        }
        CHECK(std::ranges::count(updates, 1) == size);
      }
    }
  }
}
