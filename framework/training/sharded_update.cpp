#include "framework/training/sharded_update.h"

#include <algorithm>
#include <cmath>
#include <limits>

#include <ATen/ops/empty.h>
#include <ATen/ops/isfinite.h>
#include <ATen/ops/zeros.h>
#include <c10/core/GradMode.h>

#include "framework/base/exact_sum.h"
#include "framework/collectives/axis_index.h"
#include "framework/collectives/in_place.h"
#include "framework/collectives/psum.h"
#include "framework/optim/global_norm.h"

namespace lockstep {

static_assert(FlatLayout::kBlock % kSquaresBlockElements == 0,
              "a shard must not cut what the norm adds up as one");

ShardedUpdate::ShardedUpdate(const OptimizerOptions& options, const FlatLayout& layout,
                             const std::vector<std::string>& names,
                             const FlatParameters& parameters, const FlatGradients& gradients,
                             const AxisNames& axis_name)
    : axis_(axis_name),
      optimizer_(make_optimizer(options)),
      has_all_(parameters.updates_all() || axis_size(axis_) == 1) {
  const c10::AutoGradMode no_grad(false);
  const std::int64_t replica = axis_index(axis_);
  for (std::size_t bucket = 0; bucket < layout.buckets().size(); ++bucket) {
    add_bucket(options, layout, bucket, names, parameters, gradients, replica);
  }
}

void ShardedUpdate::add_bucket(const OptimizerOptions& options, const FlatLayout& layout,
                               std::size_t bucket, const std::vector<std::string>& names,
                               const FlatParameters& parameters, const FlatGradients& gradients,
                               std::int64_t replica) {
  const Shard part = parameters.updates_all() ? Shard{0, layout.buckets()[bucket].size}
                                              : layout.shard_of(bucket, replica);
  const at::Tensor& values = parameters.own(bucket);
  const at::Tensor mean =
      parameters.updates_all() ? gradients.mean(bucket) : gradients.own_mean(bucket);
  const at::ScalarType dtype = FlatGradients::dtype_of(values.scalar_type());
  const auto count_bytes = [&](const at::Tensor& tensor) {
    bytes_ += tensor.numel() * static_cast<std::int64_t>(tensor.element_size());
    return tensor;
  };
  const bool has_master = dtype != values.scalar_type();
  const at::Tensor master = has_master ? count_bytes(values.to(dtype)) : values;
  std::vector<at::Tensor> state;
  for (std::size_t i = 0; i < optimizer_->state_tensors(); ++i) {
    state.push_back(count_bytes(at::zeros({part.size}, dtype)));
  }
  for (const FlatPiece& piece : layout.pieces(bucket, part)) {
    const auto cut = [&](const at::Tensor& flat) {
      return flat.narrow(0, piece.offset - part.offset, piece.size);
    };
    Piece made{piece.item,
               {cut(master), cut(mean), {}, {}},
               parameter_settings(options, names[piece.item])};
    for (const at::Tensor& each : state) made.slice.state.push_back(cut(each));
    if (has_master) made.slice.rounded = cut(values);
    pieces_.push_back(std::move(made));
  }
}

double ShardedUpdate::gradient_norm(bool& is_bad) const {
  ExactSum sum;
  for (const Piece& piece : pieces_) add_squares(piece.slice.gradient, sum);
  if (!has_all_) {
    // The limbs, and how many replicas call it bad.
    const at::Tensor message =
        at::empty({static_cast<std::int64_t>(ExactSum::kLimbs + 1)}, at::kLong);
    auto* const data = message.data_ptr<std::int64_t>();
    std::copy(sum.limbs().begin(), sum.limbs().end(), data);
    data[ExactSum::kLimbs] = is_bad ? 1 : 0;
    psum_(message, axis_);
    std::copy(data, data + ExactSum::kLimbs, sum.limbs().begin());
    is_bad = data[ExactSum::kLimbs] != 0;
  }
  return std::sqrt(sum.value());
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

void ShardedUpdate::update(const Settings& settings) {
  for (const Piece& piece : pieces_) {
    optimizer_->update(piece.slice, {.step = settings.step,
                                     .lr = settings.lr * piece.settings.lr_scale,
                                     .weight_decay = piece.settings.weight_decay,
                                     .gradient_scale = settings.gradient_scale,
                                     .clip_value = settings.clip_value});
  }
}

}  // namespace lockstep
