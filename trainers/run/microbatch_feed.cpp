#include "trainers/run/microbatch_feed.h"

#include <cstddef>
#include <utility>

#include <ATen/ops/zeros.h>

#include "framework/base/errors.h"
#include "framework/base/logging.h"
#include "framework/base/range.h"
#include "framework/base/text.h"
#include "framework/collectives/axis_index.h"
#include "framework/collectives/psum.h"
#include "framework/data/finite.h"
#include "trainers/config/config_options.h"
#include "trainers/run/evaluate.h"

namespace lockstep {
namespace {

// Of a replica's samples of a step, those of a microbatch. Without any the model is run all the
// same, on one that does not count: others may wait for it in the collectives inside, or to gather
// its blocks.
std::vector<std::int64_t> indices_of(const std::vector<std::int64_t>& step, const Range& part) {
  const auto begin = step.begin() + part.offset;
  return part.size > 0 ? std::vector<std::int64_t>(begin, begin + part.size)
                       : std::vector<std::int64_t>{0};
}

}  // namespace

MicrobatchFeed::MicrobatchFeed(const Config& config, const DataSets& data, const Loss& loss)
    : config_(config),
      train_(*data.train),
      loss_(loss),
      replica_(axis_index(config.launch.axis_name)),
      count_(microbatches(config)),
      sampler_(sampler_options(config, data)),
      loader_(train_, loader_options(config, train_)) {}

void MicrobatchFeed::request(std::int64_t position) {
  const auto indices = sampler_.indices(position, replica_);
  const std::int64_t epoch = epoch_of(position);
  for (std::int64_t m = 0; m < count_; ++m) {
    const Range part = shard(std::ssize(indices), count_, m);
    loader_.request(indices_of(indices, part), epoch);
    coming_.push_back({.samples = part.size, .weight = static_cast<double>(part.size)});
  }
}

BatchSamples MicrobatchFeed::samples_of(std::int64_t microbatch) {
  const auto indices = sampler_.indices(position_, replica_);
  const Range part = shard(std::ssize(indices), count_, microbatch);
  return {train_, indices_of(indices, part), "training", epoch_of(position_)};
}

Batch MicrobatchFeed::load(std::int64_t microbatch) {
  return placed([&] { return samples_of(microbatch).first_not_made(); },
                [&] { return loader_.next(); });
}

void MicrobatchFeed::begin_step(std::int64_t position) {
  position_ = position;
  left_ = count_;
  if (loss_.is_weighted_by_samples()) {
    step_weight_ = static_cast<double>(sampler_.global_batch(position));
    return;
  }
  const at::Tensor own = at::zeros({}, at::kDouble);
  for (std::int64_t m = 0; m < count_; ++m) {
    Microbatch& batch = coming_[static_cast<std::size_t>(m)];
    batch.tensors = load(m);
    if (batch.samples > 0) {
      const at::Tensor& targets = batch.tensors.targets;
      batch.weight = measured(
          [&] { return loss_text(config_); }, [&] { return samples_of(m); }, at::Tensor(), targets,
          [&](const at::Tensor&, const at::Tensor& some) { return loss_.weight(some); });
    }
    own.add_(batch.weight);
  }
  step_weight_ = psum(own, config_.launch.axis_name).item<double>();
}

std::optional<Microbatch> MicrobatchFeed::next() {
  if (left_ == 0) return std::nullopt;
  --left_;
  Microbatch first = std::move(coming_.front());
  coming_.pop_front();
  if (!first.tensors.inputs.defined()) first.tensors = load(microbatch());
  first.step_weight = step_weight_;
  return first;
}

void MicrobatchFeed::check_samples(const std::string& what, std::int64_t step) {
  if (are_samples_told_) return;
  const auto indices = sampler_.indices(position_, replica_);
  const std::string found = first_non_finite(train_, indices, epoch_of(position_));
  if (found.empty()) return;
  const std::string text =
      str(what, " is not finite at step ", step, ": of the training set, ", found);
  if (config_.zero.non_finite == NonFinite::stop) throw DataError(text);
  log_warning(text + " (said once)");
  are_samples_told_ = true;
}

}  // namespace lockstep
