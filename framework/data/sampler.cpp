#include "framework/data/sampler.h"

#include <limits>

#include "framework/base/random.h"
#include "framework/base/range.h"
#include "framework/base/text.h"

namespace lockstep {
namespace {

constexpr std::int64_t kMost = std::numeric_limits<std::int64_t>::max();

}  // namespace

Sampler::Sampler(const SamplerOptions& options) : options_(options) {
  require_at_least(1, "sampler: size", options.size);
  require_at_least(1, "sampler: batch_size", options.batch_size);
  require_at_least(1, "sampler: replicas", options.replicas);
  require(options.batch_size <= kMost / options.replicas, "sampler: batch_size ",
          options.batch_size, " times replicas ", options.replicas, " is too large for a batch");
  full_batch_ = options.batch_size * options.replicas;
  require(!options.drop_last || full_batch_ <= options.size,
          "sampler: drop_last leaves nothing of ", counted(options.size, "sample"),
          " where a step takes ", full_batch_);
}

std::int64_t Sampler::start_of_epoch(std::int64_t epoch) const {
  require_at_least(0, "sampler: epoch", epoch);
  require(epoch <= kMost / options_.size, "sampler: epoch ", epoch, " times size ", options_.size,
          " is too large for a position");
  return epoch * options_.size;
}

// Every step takes a sample or more. So no sum here is greater than end - position.
std::int64_t Sampler::steps_between(std::int64_t position, std::int64_t end) const {
  require_at_least(0, "sampler: position", position);
  require(position <= end, "sampler: position ", position, " is after the end ", end);
  const std::int64_t epochs = end / options_.size - position / options_.size;
  const std::int64_t begin = position % options_.size;
  if (epochs == 0) return steps_inside(begin, begin + (end - position));
  const std::int64_t first = steps_inside(begin, options_.size);
  const std::int64_t last = steps_inside(0, end % options_.size);
  return first + (epochs - 1) * steps_per_epoch() + last;
}

// Of an epoch, from its sample `first` on, until they have reached `last`.
std::int64_t Sampler::steps_inside(std::int64_t first, std::int64_t last) const noexcept {
  const std::int64_t steps = ceil_div(last - first, full_batch_);
  return options_.drop_last ? std::min(steps, (options_.size - first) / full_batch_) : steps;
}

std::int64_t Sampler::start_of_step(std::int64_t position) const {
  require_at_least(0, "sampler: position", position);
  const bool is_left_out =
      options_.drop_last && options_.size - position % options_.size < full_batch_;
  return is_left_out ? start_of_epoch(position / options_.size + 1) : position;
}

std::vector<std::int64_t> Sampler::indices(std::int64_t position, std::int64_t replica) {
  require(replica >= 0 && replica < options_.replicas, "sampler: replica ", replica,
          " is outside 0 ... ", options_.replicas - 1);
  const Range part = shard_samples(global_batch(position), options_.replicas, replica);
  const std::int64_t start = start_of_step(position);
  const std::int64_t epoch = start / options_.size;
  if (options_.shuffle && order_epoch_ != epoch) {
    const Key key = Key(options_.seed).fold("sampler").fold(epoch);
    order_ = {};  // not both at once
    order_ = data::IndexList::permuted(key, options_.size);
    order_epoch_ = epoch;
  }
  const std::int64_t first = start % options_.size + part.offset;
  std::vector<std::int64_t> indices(static_cast<std::size_t>(part.size));
  for (std::int64_t i = 0; i < part.size; ++i) {
    indices[static_cast<std::size_t>(i)] = options_.shuffle ? order_[first + i] : first + i;
  }
  return indices;
}

}  // namespace lockstep
