#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <vector>

#include <c10/core/ScalarType.h>

#include "framework/base/range.h"

namespace lockstep::tree {

/// A tensor to be laid out.
struct FlatItem {
  std::int64_t size;  ///< elements
  at::ScalarType dtype;
  /// Items of different groups never share a bucket. A bucket of group 0 is closed when it has
  /// reached the wanted size; the other groups have one bucket a dtype, however large.
  std::int64_t group = 0;
};

/// The most bytes of a bucket of group 0: as a rule, and for the first and last of each dtype.
struct BucketSizes {
  BucketSizes(std::int64_t bytes) : BucketSizes(bytes, bytes) {}
  BucketSizes(std::int64_t most_bytes, std::int64_t ends_bytes)
      : most(most_bytes), ends(ends_bytes) {}

  std::int64_t most;
  std::int64_t ends;  ///< at most `most`

  bool operator==(const BucketSizes&) const = default;
};

/// The place of a tensor.
struct FlatPosition {
  std::size_t bucket;
  std::int64_t offset;  ///< elements from the bucket's start
  std::int64_t size;    ///< elements
};

struct FlatBucket {
  at::ScalarType dtype;
  std::int64_t group;
  std::int64_t size;               ///< elements, with padding: a multiple of shards * kBlock
  std::vector<std::size_t> items;  ///< in the order of their offsets

  /// Returns the bytes of `size` elements of `type`; 0 if `type` is undefined.
  [[nodiscard]] std::int64_t bytes(at::ScalarType type) const {
    if (type == at::ScalarType::Undefined) return 0;
    return size * static_cast<std::int64_t>(c10::elementSize(type));
  }
};

/// A part of a tensor that lies in one piece.
struct FlatPiece {
  std::size_t item;
  std::int64_t offset;  ///< elements from the bucket's start
  std::int64_t size;    ///< elements, at least 1
};

/// Lays tensors end to end in a few flat buckets, and cuts these into shards. Tensors and shards
/// start at multiples of kBlock elements: a block, counted from its tensor's start, is never cut.
class FlatLayout {
 public:
  static constexpr std::int64_t kBlock = 64;

  FlatLayout() = default;
  /// Lays `items` out in the order that `order` lists them in (each index once), in buckets of at
  /// most `sizes` (a larger tensor is a bucket of its own), for `shards` shards. Buckets come in
  /// the order of their last items. Throws ValueError for sizes below 0 and numbers below 1.
  FlatLayout(const std::vector<FlatItem>& items, const std::vector<std::size_t>& order,
             const BucketSizes& sizes, std::int64_t shards);

  [[nodiscard]] const std::vector<FlatBucket>& buckets() const noexcept { return buckets_; }
  [[nodiscard]] const FlatPosition& place(std::size_t item) const { return places_[item]; }
  [[nodiscard]] std::int64_t shards() const noexcept { return shards_; }
  /// Returns shard `index` of a bucket: all of its shards have one size.
  [[nodiscard]] Range shard_of(std::size_t bucket, std::int64_t index) const {
    return shard(buckets_[bucket].size, shards_, index);
  }
  /// Returns the pieces of tensors that lie in `part` of a bucket, without the padding.
  [[nodiscard]] std::vector<FlatPiece> pieces(std::size_t bucket, const Range& part) const;
  /// True if any bucket is of a group other than 0.
  [[nodiscard]] bool has_groups() const noexcept {
    return std::ranges::any_of(buckets_, [](const FlatBucket& each) { return each.group != 0; });
  }
  /// Returns the number of elements of all buckets, with padding.
  [[nodiscard]] std::int64_t total() const noexcept;

 private:
  std::vector<FlatBucket> buckets_;
  std::vector<FlatPosition> places_;
  std::int64_t shards_ = 1;
};

}  // namespace lockstep::tree
