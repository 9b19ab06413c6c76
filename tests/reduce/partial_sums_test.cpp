#include "framework/reduce/partial_sums.h"

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <span>
#include <vector>

#include "framework/base/bytes.h"
#include "framework/base/range.h"
#include "framework/reduce/reduce.h"
#include "tests/catch.h"
#include "tests/reduce/reductions.h"
#include "tests/support/settings.h"

using namespace lockstep;
using testing::kOps;
using testing::kTypes;
using testing::random_inputs;
using testing::splits;
using Places = std::vector<int>;
using Subtrees = std::vector<reduce::Subtree>;

namespace {

// Returns the subtrees of a process that has `own` of the places; another one has the rest.
Subtrees subtrees_of(const Places& own, int places) {
  Places rest;
  for (int place = 0; place < places; ++place) {
    if (std::ranges::count(own, place) == 0) rest.push_back(place);
  }
  return reduce::ReductionPlan({own, rest}, ElementType::float32, ReduceOp::sum).subtrees(0);
}

}  // namespace

TEST_CASE("a process reduces the largest subtrees that it has all of", "[partial_sums]") {
  CHECK(subtrees_of(Places{0}, 1) == Subtrees{{0, 1}});
  CHECK(subtrees_of(Places{0, 1}, 4) == Subtrees{{0, 2}});
  CHECK(subtrees_of(Places{1, 2}, 4) == Subtrees{{1, 1}, {2, 1}});
  CHECK(subtrees_of(Places{0, 1, 2}, 5) == Subtrees{{0, 2}, {2, 1}});
  CHECK(subtrees_of(Places{3, 4}, 5) == Subtrees{{3, 1}, {4, 1}});
  CHECK(subtrees_of(Places{0, 2, 3}, 6) == Subtrees{{0, 1}, {2, 2}});
  CHECK(subtrees_of(Places{4, 5}, 6) == Subtrees{{4, 2}});
  CHECK(subtrees_of(Places{0, 1, 2, 3, 4, 5, 6}, 7) == Subtrees{{0, 7}});
  // Blocks as workers have them: two for every doubling at most.
  for (int places = 1; places <= 64; ++places) {
    for (int workers = 1; workers <= places; ++workers) {
      for (int worker = 0; worker < workers; ++worker) {
        const Range own = shard(places, workers, worker);
        Places there;
        for (std::int64_t i = 0; i < own.size; ++i)
          there.push_back(static_cast<int>(own.offset + i));
        std::size_t most = 1;
        for (std::int64_t size = own.size; size > 1; size /= 2) most += 2;
        CHECK(subtrees_of(there, places).size() <= most);
      }
    }
  }
}

TEST_CASE("one sum each is enough where blocks are subtrees", "[partial_sums]") {
  const auto is_enough = [](const std::vector<Places>& places, ReduceOp op = ReduceOp::sum) {
    return reduce::ReductionPlan(places, ElementType::float32, op).is_one_sum_each();
  };
  CHECK(is_enough({{0, 1}, {2, 3}}));
  CHECK(is_enough({{0, 1}, {2}}, ReduceOp::mean));
  CHECK(is_enough({{0, 1}, {2, 3}, {4}}));
  CHECK(is_enough({{0, 1}, {2, 3}, {4}, {5}}));
  CHECK(is_enough({{0, 1}, {2, 3}, {4, 5}}));
  CHECK(!is_enough({{0, 1, 2}, {3}}));
  CHECK(!is_enough({{0}, {1, 2}}));
  CHECK(!is_enough({{2, 3}, {0, 1}}));
  CHECK(is_enough({{0, 1, 2, 3}, {4, 5}}));
  CHECK(!reduce::ReductionPlan({{0, 1}, {2, 3}}, ElementType::float16, ReduceOp::sum)
             .is_one_sum_each());
  CHECK(reduce::ReductionPlan({{0, 1}, {2, 3}}, ElementType::bfloat16, ReduceOp::max)
            .is_one_sum_each());
}

TEST_CASE("partial sums combine to the bits of the whole", "[partial_sums][bulk]") {
  constexpr std::size_t kBytes = 1000;
  for (int places = 1; places <= 9; ++places) {
    for (const ElementType type : kTypes) {
      const auto inputs = random_inputs(places, kBytes, type);
      for (const ReduceOp op : kOps) {
        if (!testing::is_allowed(type, op)) continue;
        std::vector<const std::byte*> all;
        for (const auto& input : inputs) all.push_back(input.data());
        std::vector<std::byte> expected(kBytes / size_of(type) * size_of(type));
        reduce::reduce(all, expected, type, op);
        std::size_t wrong = 0;
        for (const auto& split : splits(places)) {
          const reduce::ReductionPlan plan(split, type, op);
          std::vector<std::vector<ConstBytes>> pieces;
          std::vector<std::vector<std::byte>> sums;
          sums.reserve(static_cast<std::size_t>(places));
          for (std::size_t process = 0; process < split.size(); ++process) {
            pieces.emplace_back();
            for (const reduce::Subtree& subtree : plan.subtrees(process)) {
              sums.emplace_back(expected.size());
              const auto first = static_cast<std::size_t>(subtree.first);
              reduce::reduce(std::span(all).subspan(first, static_cast<std::size_t>(subtree.count)),
                             sums.back(), type,
                             subtree.count == 1 ? ReduceOp::max : reduce::partial_op(op));
              pieces.back().emplace_back(sums.back());
            }
          }
          std::vector<std::byte> result(expected.size());
          plan.combine(pieces, 0, 1, result, type, op);
          wrong += result == expected ? 0 : 1;
        }
        INFO(places << " places, " << name_of(type) << ", " << name_of(op)
                    << ", LOCKSTEP_SEED=" << testing::seed());
        CHECK(wrong == 0);
      }
    }
  }
}
