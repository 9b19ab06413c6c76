#include "framework/tree/flat_layout.h"

#include <map>
#include <optional>
#include <utility>

#include "framework/base/text.h"

namespace lockstep::tree {

FlatLayout::FlatLayout(const std::vector<FlatItem>& items, const std::vector<std::size_t>& order,
                       const BucketSizes& sizes, std::int64_t shards)
    : places_(items.size()), shards_(shards) {
  require(sizes.ends >= 1 && sizes.most >= sizes.ends && shards >= 1, "flat layout: buckets of ",
          sizes.most, " bytes, the first and last of ", sizes.ends, ", for ",
          counted(shards, "shard"),
          "; all must be at least 1, and no bucket is larger than `most`");
  require(order.size() == items.size(), "flat layout: an order of ", order.size(), " for ",
          items.size(), " tensors");
  // The items of a group and dtype, while they are laid out.
  struct Row {
    std::int64_t left = 0;  // bytes that are not laid out yet
    std::optional<std::size_t> bucket{};
    bool is_first = true;  // the bucket is the row's first one
    bool is_last = false;  // and all bytes left fitted into it when it was made
  };
  std::map<std::pair<std::int64_t, at::ScalarType>, Row> rows;
  const auto item_bytes = [](const FlatItem& item) {
    return item.size * static_cast<std::int64_t>(c10::elementSize(item.dtype));
  };
  for (const FlatItem& item : items) {
    require(item.size >= 0, "flat layout: size ", item.size, " is negative");
    rows[{item.group, item.dtype}].left += item_bytes(item);
  }
  std::vector<std::size_t> last_of;  // by bucket: the rank of its last item
  for (std::size_t rank = 0; rank < order.size(); ++rank) {
    const FlatItem& item = items.at(order[rank]);
    Row& row = rows[{item.group, item.dtype}];
    const bool begins_last =
        sizes.ends < sizes.most && row.left <= sizes.ends && !row.is_last && row.bucket;
    const auto fits = [&] {
      const std::int64_t bytes = buckets_[*row.bucket].bytes(item.dtype) + item_bytes(item);
      return item.group != 0 || (!begins_last && bytes <= (row.is_first ? sizes.ends : sizes.most));
    };
    if (!row.bucket || !fits()) {
      row.is_first = !row.bucket;
      row.is_last = row.left <= sizes.ends;
      row.bucket = buckets_.size();
      buckets_.push_back({item.dtype, item.group, 0, {}});
      last_of.push_back(0);
    }
    row.left -= item_bytes(item);
    FlatBucket& into = buckets_[*row.bucket];
    places_[order[rank]] = {*row.bucket, into.size, item.size};
    into.items.push_back(order[rank]);
    into.size = round_up(into.size + item.size, kBlock);
    last_of[*row.bucket] = rank;
  }
  std::vector<std::size_t> by_end = consecutive(std::size_t{0}, buckets_.size());
  std::ranges::sort(by_end, {}, [&](std::size_t bucket) { return last_of[bucket]; });
  buckets_ = mapped(by_end, [&](std::size_t bucket) { return std::move(buckets_[bucket]); });
  for (std::size_t index = 0; index < buckets_.size(); ++index) {
    buckets_[index].size = round_up(buckets_[index].size, shards * kBlock);
    for (const std::size_t item : buckets_[index].items) places_[item].bucket = index;
  }
}

std::vector<FlatPiece> FlatLayout::pieces(std::size_t bucket, const Range& part) const {
  std::vector<FlatPiece> found;
  for (const std::size_t item : buckets_[bucket].items) {
    const FlatPosition& place = places_[item];
    const Range common = intersection(Range{place.offset, place.size}, part);
    if (common.size > 0) found.push_back({item, common.offset, common.size});
  }
  return found;
}

std::int64_t FlatLayout::total() const noexcept {
  return sum_of(buckets_, &FlatBucket::size);
}

}  // namespace lockstep::tree
