#include "framework/data/sampler.h"

#include <algorithm>
#include <limits>
#include <numeric>

#include "framework/base/random.h"
#include "framework/base/shard.h"
#include "framework/base/text.h"

namespace lockstep {
namespace {

void check_positive(const char* name, std::int64_t value) {
  require(value >= 1, "sampler: ", name, " is ", value, ", but must be at least 1");
}

void check_below(const char* name, std::int64_t value, std::int64_t count) {
  require(value >= 0 && value < count, "sampler: ", name, " ", value, " is outside 0 ... ",
          count - 1);
}

}  // namespace

Sampler::Sampler(const SamplerOptions& options) : options_(options) {
  check_positive("size", options.size);
  check_positive("batch_size", options.batch_size);
  check_positive("replicas", options.replicas);
  require(options.batch_size <= std::numeric_limits<std::int64_t>::max() / options.replicas,
          "sampler: batch_size ", options.batch_size, " times replicas ", options.replicas,
          " is too large for a batch");
  full_batch_ = options.batch_size * options.replicas;
}

std::int64_t Sampler::steps_per_epoch() const noexcept {
  return options_.size / full_batch_ + (options_.size % full_batch_ == 0 ? 0 : 1);
}

std::int64_t Sampler::global_batch(std::int64_t step) const {
  check_below("step", step, steps_per_epoch());
  return std::min(full_batch_, options_.size - step * full_batch_);
}

std::vector<std::int64_t> Sampler::indices(std::int64_t epoch, std::int64_t step,
                                           std::int64_t replica) {
  require(epoch >= 0, "sampler: epoch is ", epoch, ", but must be at least 0");
  check_below("replica", replica, options_.replicas);
  const Shard part = shard(global_batch(step), options_.replicas, replica);
  if (order_epoch_ != epoch) {
    if (options_.shuffle) {
      const Key key = Key(options_.seed).fold("sampler").fold(static_cast<std::uint64_t>(epoch));
      order_ = permutation(key, options_.size);
    } else if (order_.empty()) {
      order_.resize(static_cast<std::size_t>(options_.size));
      std::iota(order_.begin(), order_.end(), 0);
    }
    order_epoch_ = epoch;
  }
  const auto first = order_.begin() + (step * full_batch_ + part.offset);
  return {first, first + part.size};
}

}  // namespace lockstep
