#include "framework/tree/flat_layout.h"

#include <algorithm>
#include <map>
#include <numeric>
#include <utility>

#include "framework/base/text.h"

namespace lockstep::tree {
namespace {

std::int64_t round_up(std::int64_t value, std::int64_t multiple) {
  return (value + multiple - 1) / multiple * multiple;
}

}  // namespace

FlatLayout::FlatLayout(const std::vector<FlatItem>& items, const std::vector<std::size_t>& order,
                       std::int64_t bucket_bytes, std::int64_t shards)
    : places_(items.size()), shards_(shards) {
  require(bucket_bytes >= 1 && shards >= 1, "flat layout: bucket_bytes is ", bucket_bytes,
          ", shards ", shards, "; both must be at least 1");
  require(order.size() == items.size(), "flat layout: an order of ", order.size(), " for ",
          items.size(), " tensors");
  std::map<std::pair<std::int64_t, at::ScalarType>, std::size_t> open;
  std::vector<std::size_t> last_of;  // by bucket: when its last item came
  for (std::size_t rank = 0; rank < order.size(); ++rank) {
    const FlatItem& item = items.at(order[rank]);
    require(item.size >= 0, "flat layout: size ", item.size, " is negative");
    const auto width = static_cast<std::int64_t>(c10::elementSize(item.dtype));
    const auto key = std::make_pair(item.group, item.dtype);
    auto bucket = open.find(key);
    const bool fits = bucket != open.end() &&
                      (item.group != 0 || buckets_[bucket->second].items.empty() ||
                       (buckets_[bucket->second].size + item.size) * width <= bucket_bytes);
    if (!fits) {
      buckets_.push_back({item.dtype, item.group, 0, {}});
      last_of.push_back(0);
      bucket = open.insert_or_assign(key, buckets_.size() - 1).first;
    }
    FlatBucket& into = buckets_[bucket->second];
    places_[order[rank]] = {bucket->second, into.size, item.size};
    into.items.push_back(order[rank]);
    into.size = round_up(into.size + item.size, kBlock);
    last_of[bucket->second] = rank;
  }
  std::vector<std::size_t> by_end(buckets_.size());
  std::iota(by_end.begin(), by_end.end(), std::size_t{0});
  std::ranges::sort(by_end, {}, [&](std::size_t bucket) { return last_of[bucket]; });
  std::vector<FlatBucket> sorted;
  for (const std::size_t bucket : by_end) sorted.push_back(std::move(buckets_[bucket]));
  buckets_ = std::move(sorted);
  for (std::size_t index = 0; index < buckets_.size(); ++index) {
    buckets_[index].size = round_up(buckets_[index].size, shards * kBlock);
    for (const std::size_t item : buckets_[index].items) places_[item].bucket = index;
  }
}

std::vector<FlatPiece> FlatLayout::pieces(std::size_t bucket, const Shard& part) const {
  std::vector<FlatPiece> found;
  for (const std::size_t item : buckets_[bucket].items) {
    const FlatPosition& place = places_[item];
    const std::int64_t begin = std::max(place.offset, part.offset);
    const std::int64_t end = std::min(place.offset + place.size, part.offset + part.size);
    if (begin < end) found.push_back({item, begin, end - begin});
  }
  return found;
}

std::int64_t FlatLayout::total() const noexcept {
  std::int64_t sum = 0;
  for (const FlatBucket& bucket : buckets_) sum += bucket.size;
  return sum;
}

}  // namespace lockstep::tree
