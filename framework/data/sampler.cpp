#include "framework/data/sampler.h"

#include <algorithm>
#include <limits>
#include <numeric>

#include "framework/base/random.h"
#include "framework/base/shard.h"
#include "framework/base/text.h"

namespace lockstep {
namespace {

constexpr std::int64_t kMost = std::numeric_limits<std::int64_t>::max();

void check_positive(const char* name, std::int64_t value) {
  require(value >= 1, "sampler: ", name, " is ", value, ", but must be at least 1");
}

void check_natural(const char* name, std::int64_t value) {
  require(value >= 0, "sampler: ", name, " is ", value, ", but must be at least 0");
}

// The parts of `size` that hold `count` items.
std::int64_t parts(std::int64_t count, std::int64_t size) {
  return count / size + (count % size == 0 ? 0 : 1);
}

}  // namespace

Sampler::Sampler(const SamplerOptions& options) : options_(options) {
  check_positive("size", options.size);
  check_positive("batch_size", options.batch_size);
  check_positive("replicas", options.replicas);
  require(options.batch_size <= kMost / options.replicas, "sampler: batch_size ",
          options.batch_size, " times replicas ", options.replicas, " is too large for a batch");
  full_batch_ = options.batch_size * options.replicas;
}

std::int64_t Sampler::steps_per_epoch() const noexcept {
  return parts(options_.size, full_batch_);
}

std::int64_t Sampler::start_of_epoch(std::int64_t epoch) const {
  check_natural("epoch", epoch);
  require(epoch <= kMost / options_.size, "sampler: epoch ", epoch, " times size ", options_.size,
          " is too large for a position");
  return epoch * options_.size;
}

// Every step takes a sample or more. So no sum here is greater than end - position.
std::int64_t Sampler::steps_between(std::int64_t position, std::int64_t end) const {
  check_natural("position", position);
  require(position <= end, "sampler: position ", position, " is after the end ", end);
  const std::int64_t epochs = end / options_.size - position / options_.size;
  if (epochs == 0) return parts(end - position, full_batch_);
  const std::int64_t first = parts(options_.size - position % options_.size, full_batch_);
  const std::int64_t last = parts(end % options_.size, full_batch_);
  return first + (epochs - 1) * steps_per_epoch() + last;
}

std::int64_t Sampler::global_batch(std::int64_t position) const {
  check_natural("position", position);
  return std::min(full_batch_, options_.size - position % options_.size);
}

std::vector<std::int64_t> Sampler::indices(std::int64_t position, std::int64_t replica) {
  require(replica >= 0 && replica < options_.replicas, "sampler: replica ", replica,
          " is outside 0 ... ", options_.replicas - 1);
  const Shard part = shard(global_batch(position), options_.replicas, replica);
  const std::int64_t epoch = position / options_.size;
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
  const auto first = order_.begin() + (position % options_.size + part.offset);
  return {first, first + part.size};
}

}  // namespace lockstep
