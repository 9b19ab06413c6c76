#include "framework/tree/flat_layout.h"

#include <algorithm>
#include <numeric>
#include <random>

#include "framework/base/errors.h"
#include "tests/catch.h"
#include "tests/support/settings.h"

using namespace lockstep;

namespace {

std::vector<std::size_t> in_order(std::size_t count) {
  std::vector<std::size_t> order(count);
  std::iota(order.begin(), order.end(), std::size_t{0});
  return order;
}

}  // namespace

TEST_CASE("a layout has every tensor once, in order, in buckets of the wanted size") {
  const std::vector<tree::FlatItem> items{{100, at::kFloat}, {1, at::kFloat}, {64, at::kDouble},
                                          {300, at::kFloat}, {7, at::kFloat}, {0, at::kFloat}};
  const tree::FlatLayout layout(items, {4, 3, 2, 1, 0, 5}, 256 * 4, 2);
  REQUIRE(layout.buckets().size() == 4);
  // 7 and 300 do not fit into one; the double's bucket ends before 1, 100 and 0 do.
  CHECK(layout.buckets()[0].items == std::vector<std::size_t>{4});
  CHECK(layout.buckets()[1].items == std::vector<std::size_t>{3});
  CHECK(layout.buckets()[2].items == std::vector<std::size_t>{2});
  CHECK(layout.buckets()[3].items == std::vector<std::size_t>{1, 0, 5});
  CHECK(layout.buckets()[0].size == 128);
  CHECK(layout.buckets()[1].size == 384);
  CHECK(layout.buckets()[2].size == 128);
  CHECK(layout.buckets()[3].size == 256);
  CHECK(layout.place(0).offset == 64);
  CHECK(layout.total() == 128 + 384 + 128 + 256);
  CHECK(layout.shard_of(1, 1).offset == 192);
  const auto pieces = layout.pieces(1, layout.shard_of(1, 1));
  REQUIRE(pieces.size() == 1);
  CHECK(pieces[0].offset == 192);
  CHECK(pieces[0].size == 108);
}

TEST_CASE("groups share no bucket and have one a dtype, however large") {
  const std::vector<tree::FlatItem> items{{5000, at::kFloat, 1}, {3, at::kFloat, 0},
                                          {5000, at::kFloat, 1}, {9, at::kFloat, 2},
                                          {4, at::kBFloat16, 2}, {2, at::kFloat, 0}};
  const tree::FlatLayout layout(items, in_order(items.size()), 64, 3);
  std::vector<std::vector<std::size_t>> found;
  for (const tree::FlatBucket& bucket : layout.buckets()) found.push_back(bucket.items);
  CHECK(found == std::vector<std::vector<std::size_t>>{{1}, {0, 2}, {3}, {4}, {5}});
}

TEST_CASE("shards cover a bucket, and no block of a tensor is cut") {
  std::mt19937_64 random(lockstep::testing::seed());
  for (int round = 0; round < 200; ++round) {
    std::vector<tree::FlatItem> items(1 + random() % 12);
    for (tree::FlatItem& item : items) {
      item.size = static_cast<std::int64_t>(random() % (random() % 2 == 0 ? 10 : 3000));
      item.dtype = random() % 4 == 0 ? at::kDouble : at::kFloat;
    }
    auto order = in_order(items.size());
    std::shuffle(order.begin(), order.end(), random);
    const auto shards = static_cast<std::int64_t>(1 + random() % 9);
    const tree::FlatLayout layout(items, order, static_cast<std::int64_t>(1 + random() % 20'000),
                                  shards);
    std::vector<std::int64_t> covered(items.size(), 0);
    for (std::size_t bucket = 0; bucket < layout.buckets().size(); ++bucket) {
      std::int64_t end = 0;
      for (std::int64_t index = 0; index < shards; ++index) {
        const Range own = layout.shard_of(bucket, index);
        REQUIRE(own.offset == end);
        end = own.offset + own.size;
        for (const tree::FlatPiece& piece : layout.pieces(bucket, own)) {
          const tree::FlatPosition& place = layout.place(piece.item);
          REQUIRE(place.bucket == bucket);
          REQUIRE((piece.offset - place.offset) % tree::FlatLayout::kBlock == 0);
          REQUIRE(piece.offset - place.offset == covered[piece.item]);
          covered[piece.item] += piece.size;
        }
      }
      REQUIRE(end == layout.buckets()[bucket].size);
    }
    for (std::size_t item = 0; item < items.size(); ++item) {
      REQUIRE(covered[item] == items[item].size);
    }
  }
}

TEST_CASE("a layout's numbers are checked") {
  CHECK_THROWS_WITH(tree::FlatLayout({{1, at::kFloat}}, {0}, 0, 1),
                    ContainsSubstring("buckets of 0 bytes, the first and last of 0, for 1 shard"));
  CHECK_THROWS_AS(tree::FlatLayout({{1, at::kFloat}}, {0}, {1, 2}, 1), ValueError);
  CHECK_THROWS_AS(tree::FlatLayout({{1, at::kFloat}}, {0}, 1, 0), ValueError);
  CHECK_THROWS_AS(tree::FlatLayout({{1, at::kFloat}}, {}, 1, 1), ValueError);
  CHECK_THROWS_AS(tree::FlatLayout({{-1, at::kFloat}}, {0}, 1, 1), ValueError);
}

TEST_CASE("the first and the last bucket of a layout may be smaller than those between") {
  const auto buckets_of = [](const std::vector<std::int64_t>& sizes) {
    std::vector<tree::FlatItem> items;
    for (const std::int64_t size : sizes) items.push_back({64 * size, at::kFloat});
    const std::int64_t unit = 64 * 4;
    const tree::FlatLayout layout(items, in_order(items.size()), {4 * unit, 2 * unit}, 1);
    std::vector<std::vector<std::size_t>> found;
    for (const tree::FlatBucket& bucket : layout.buckets()) found.push_back(bucket.items);
    return found;
  };
  using Buckets = std::vector<std::vector<std::size_t>>;
  CHECK(buckets_of({1, 1, 1, 1, 1, 1, 1, 1, 1}) == Buckets{{0, 1}, {2, 3, 4, 5}, {6}, {7, 8}});
  CHECK(buckets_of({1, 1}) == Buckets{{0, 1}});
  CHECK(buckets_of({1, 1, 1}) == Buckets{{0}, {1, 2}});
  CHECK(buckets_of({9}) == Buckets{{0}});
  // A tensor is never cut.
  CHECK(buckets_of({1, 9, 1, 1}) == Buckets{{0}, {1}, {2, 3}});
  CHECK(buckets_of({1, 9, 9}) == Buckets{{0}, {1}, {2}});
  CHECK(buckets_of({1, 9, 1, 9}) == Buckets{{0}, {1}, {2}, {3}});
}
