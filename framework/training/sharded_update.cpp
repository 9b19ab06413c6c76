#include "framework/training/sharded_update.h"

#include <cmath>
#include <cstring>
#include <limits>

#include <ATen/ops/full.h>
#include <ATen/ops/isfinite.h>
#include <ATen/ops/zeros.h>
#include <c10/core/GradMode.h>

#include "framework/base/exact_sum.h"
#include "framework/collectives/axis_index.h"
#include "framework/collectives/in_place.h"
#include "framework/collectives/psum.h"
#include "framework/optim/global_norm.h"
#include "framework/tree/error_place.h"

namespace lockstep::training {

static_assert(tree::FlatLayout::kBlock % kSquaresBlockElements == 0,
              "a shard must not cut what the norm adds up as one");

ShardedUpdate::ShardedUpdate(const OptimizerOptions& options, const BufferPlan& plan,
                             const ModuleParameters& module, const FlatParameters& parameters,
                             const FlatGradients& gradients, const AxisNames& axis_name)
    : names_(module.names),
      axis_(axis_name),
      optimizer_(make_optimizer(options)),
      steps_(names_.size(), 0),
      has_all_(parameters.updates_all() || axis_size(axis_) == 1) {
  for (const at::Tensor& parameter : module.tensors) shapes_.push_back(parameter.sizes().vec());
  const tree::FlatLayout& layout = plan.layout;
  for (std::size_t bucket = 0; bucket < layout.buckets().size(); ++bucket) {
    const Range own = plan.buckets[bucket].shard;
    for (const auto& [part, values] : parameters.own(bucket)) {
      // It is whole, or the own shard.
      at::Tensor mean = gradients.mean(bucket);
      if (mean.numel() == layout.buckets()[bucket].size) {
        mean = mean.narrow(0, part.offset, part.size);
      }
      PlannedTensors planned = plan.buckets[bucket].state;
      planned.size = part.size;
      std::vector<at::Tensor> state(static_cast<std::size_t>(planned.count));
      for (at::Tensor& each : state) each = planned.zeros();
      bytes_ += planned.bytes();
      at::Tensor master = values;
      const bool has_master = state.size() > optimizer_->state_tensors();
      if (has_master) {
        master = state.back().copy_(values);
        state.pop_back();
      }
      for (const tree::FlatPiece& piece : layout.pieces(bucket, part)) {
        const auto cut = [&](const at::Tensor& flat) {
          return flat.narrow(0, piece.offset - part.offset, piece.size);
        };
        const Range saved = intersection(Range{piece.offset, piece.size}, own);
        Piece made{piece.item,
                   {cut(master), cut(mean), {}, {}},
                   parameter_settings(options, names_[piece.item]),
                   piece.offset - layout.place(piece.item).offset,
                   {saved.offset - piece.offset, saved.size}};
        for (const at::Tensor& each : state) made.slice.state.push_back(cut(each));
        if (has_master) made.slice.rounded = cut(values);
        pieces_.push_back(std::move(made));
      }
    }
  }
}

// In one message: the limbs of the norm's square, and each replica's vote in a place of its own.
StepVotes ShardedUpdate::exchange(const StepVote& own, int exponent) const {
  constexpr std::size_t kWords = sizeof(StepVote) / sizeof(std::int64_t);
  ExactSum sum;
  for (const Piece& piece : pieces_) {
    at::Tensor gradient = piece.slice.gradient;
    // What other replicas hold, too, is theirs to add.
    if (!has_all_ && piece.saved.size == 0) continue;
    if (!has_all_) gradient = gradient.narrow(0, piece.saved.offset, piece.saved.size);
    add_squares(exponent == 0 ? gradient : gradient.mul(std::ldexp(1.0, -exponent)), sum);
  }
  const auto replicas = static_cast<std::size_t>(axis_size(axis_));
  if (replicas == 1) return {std::sqrt(sum.value()), {own}};
  const std::size_t limbs = has_all_ ? 0 : ExactSum::kLimbs;
  const at::Tensor message =
      at::zeros({static_cast<std::int64_t>(limbs + replicas * kWords)}, at::kLong);
  auto* const data = message.data_ptr<std::int64_t>();
  std::copy_n(sum.limbs().begin(), limbs, data);
  auto* const votes = data + limbs;
  const auto replica = static_cast<std::size_t>(axis_index(axis_));
  std::memcpy(votes + replica * kWords, &own, sizeof(own));
  psum_(message, axis_);
  std::copy_n(data, limbs, sum.limbs().begin());
  StepVotes all{std::sqrt(sum.value()), std::vector<StepVote>(replicas)};
  std::memcpy(static_cast<void*>(all.votes.data()), votes, replicas * sizeof(StepVote));
  return all;
}

double ShardedUpdate::norm_of_large() const {
  double largest = 0;
  for (const Piece& piece : pieces_) {
    largest = std::max(largest, piece.slice.gradient.abs().max().item<double>());
  }
  if (!has_all_) largest = pmax(at::full({}, largest, at::kDouble), axis_).item<double>();
  const int exponent = std::ilogb(largest);
  return std::ldexp(exchange({}, exponent).gradient_norm, exponent);
}

std::optional<std::size_t> ShardedUpdate::first_non_finite() const {
  constexpr std::int64_t kNone = std::numeric_limits<std::int64_t>::max();
  std::int64_t first = kNone;
  for (const Piece& piece : pieces_) {
    if (at::isfinite(piece.slice.gradient).all().item<bool>()) continue;
    first = std::min(first, static_cast<std::int64_t>(piece.parameter));
  }
  if (!has_all_) {
    first = pmin(at::zeros({}, at::kLong).fill_(first), axis_).item<std::int64_t>();
  }
  if (first == kNone) return std::nullopt;
  return static_cast<std::size_t>(first);
}

void ShardedUpdate::update(const UpdateSettings& common, const std::vector<bool>& skipped) {
  for (std::size_t i = 0; i < steps_.size(); ++i) steps_[i] += skipped[i] ? 0 : 1;
  for (const Piece& piece : pieces_) {
    if (skipped[piece.parameter]) continue;
    UpdateSettings settings = common;
    settings.step = steps_[piece.parameter];
    settings.lr *= piece.settings.lr_scale;
    settings.weight_decay = piece.settings.weight_decay;
    placed(
        [&] {
          return lockstep::str("in the optimizer's step ", settings.step, " of parameter '",
                               names_[piece.parameter], "', ", form_of(piece.slice.parameter));
        },
        [&] { optimizer_->update(piece.slice, settings); });
  }
}

void ShardedUpdate::refresh_masters(const std::vector<std::size_t>& parameters) {
  const c10::AutoGradMode no_grad(false);
  for (const Piece& piece : pieces_) {
    const bool is_fresh = std::ranges::count(parameters, piece.parameter) > 0;
    if (is_fresh && piece.slice.rounded.defined()) {
      piece.slice.parameter.copy_(piece.slice.rounded);
    }
  }
}

std::vector<ShardedUpdate::SavedPart> ShardedUpdate::saved_parts() const {
  std::vector<SavedPart> parts;
  for (const Piece& piece : pieces_) {
    if (piece.saved.size == 0) continue;
    parts.push_back({piece.parameter, piece.offset + piece.saved.offset,
                     piece.slice.parameter.narrow(0, piece.saved.offset, piece.saved.size)});
  }
  return parts;
}

void ShardedUpdate::archive_state(const StateArchive& archive) {
  const auto has_state = [&](const std::string& name) {
    return std::ranges::all_of(optimizer_->state_names(), [&](const auto& state) {
      return archive.has(kOptimizer + state + "/" + name);
    });
  };
  for (const Piece& piece : pieces_) {
    if (!archive.restores() && piece.saved.size == 0) continue;
    const std::string& name = names_[piece.parameter];
    const auto part = [&](const std::string& kind, const at::Tensor& values) {
      archive.part({kind + name, shapes_[piece.parameter], piece.offset, values}, piece.saved);
    };
    part(kParameters, piece.slice.parameter);
    for (std::size_t i = 0; i < piece.slice.state.size(); ++i) {
      part(kOptimizer + optimizer_->state_names()[i] + "/", piece.slice.state[i]);
    }
    if (!archive.restores()) {
      const bool is_first = piece.offset + piece.saved.offset == 0;
      archive.number(kOptimizerStep + name, steps_[piece.parameter], is_first);
      continue;
    }
    if (piece.slice.rounded.defined()) piece.slice.rounded.copy_(piece.slice.parameter);
    if (has_state(name)) continue;
    // The checkpoint is another optimizer's: all state starts anew, also what both optimizers have.
    for (const at::Tensor& state : piece.slice.state) state.zero_();
  }
  for (std::size_t i = 0; archive.restores() && i < names_.size(); ++i) {
    // Nobody has saved a parameter without elements.
    if (std::ranges::count(shapes_[i], 0) > 0) continue;
    archive.number(kOptimizerStep + names_[i], steps_[i]);
    if (!has_state(names_[i])) steps_[i] = 0;  // counted from its own first step
  }
}

}  // namespace lockstep::training
