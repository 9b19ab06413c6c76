#include "framework/training/averaged_parameters.h"

#include <algorithm>

#include <ATen/Dispatch.h>
#include <ATen/Parallel.h>

#include "framework/base/logging.h"
#include "framework/collectives/axis_index.h"
#include "framework/collectives/in_place.h"

namespace lockstep::training {
namespace {

constexpr std::int64_t kAveragedAtOnce = 32'768;

// Not lerp_, whose rounding depends on where a vector ends.
void move_towards(const at::Tensor& average, const at::Tensor& value, double rate) {
  AT_DISPATCH_FLOATING_TYPES(average.scalar_type(), "average of parameters", [&] {
    auto* const averages = average.data_ptr<scalar_t>();
    const auto* const values = value.data_ptr<scalar_t>();
    const auto part = static_cast<scalar_t>(rate);
    at::parallel_for(0, average.numel(), kAveragedAtOnce,
                     [=](std::int64_t begin, std::int64_t end) {
                       for (std::int64_t i = begin; i < end; ++i) {
                         averages[i] += part * (values[i] - averages[i]);
                       }
                     });
  });
}

}  // namespace

AveragedParameters::AveragedParameters(double decay, bool warms_up, const BufferPlan& plan,
                                       const ModuleParameters& module, const ShardedUpdate& update,
                                       const AxisNames& axis_name)
    : decay_(decay), warms_up_(warms_up), axis_(axis_name) {
  for (const BucketPlan& bucket : plan.buckets) shards_.push_back(bucket.averages.zeros());
  for (const ShardedUpdate::SavedPart& part : update.saved_parts()) {
    const tree::FlatPosition& place = plan.layout.place(part.parameter);
    const std::int64_t begin = place.offset + part.offset - plan.buckets[place.bucket].shard.offset;
    averages_.push_back(
        {{kAverages + module.names[part.parameter], module.tensors[part.parameter].sizes().vec(),
          part.offset, shards_[place.bucket].narrow(0, begin, part.values.numel())},
         part.values});
  }
}

void AveragedParameters::start() {
  if (!has_started_) take_values();
  has_started_ = true;
}

void AveragedParameters::take_values() {
  for (const Average& each : averages_) each.piece.values.copy_(each.value);
}

void AveragedParameters::add() {
  const auto t = static_cast<double>(updates_++);
  const double decay = warms_up_ ? std::min(decay_, (1 + t) / (10 + t)) : decay_;
  for (const Average& each : averages_) move_towards(each.piece.values, each.value, 1 - decay);
}

void AveragedParameters::gather_into(const at::Tensor& whole, std::size_t bucket) {
  if (!has_started_) take_values();
  all_gather_into(whole, shards_[bucket].to(whole.scalar_type()), axis_);
}

void AveragedParameters::archive_state(const StateArchive& archive) {
  if (!has_started_) take_values();
  has_started_ = has_started_ || archive.restores();
  bool is_new = false;
  for (const auto& [piece, value] : averages_) {
    if ((!archive.restores() || archive.has(piece.name)) && archive.part(piece)) continue;
    piece.values.copy_(value);
    is_new = true;
  }
  const bool is_first = axis_index(axis_) == 0;
  if (!archive.restores()) {
    return archive.number(kAverageUpdates, updates_, /*saves=*/warms_up_ && is_first);
  }
  updates_ = 0;
  // Averages that do not warm up have no count: they are as old as the run.
  if (!is_new) archive.number(archive.has(kAverageUpdates) ? kAverageUpdates : kSteps, updates_);
  if (is_new && is_first) {
    log_info("averages of parameters that are not in the restored state start at the values there");
  }
}

}  // namespace lockstep::training
