#include "framework/training/dropout.h"

#include <cmath>
#include <utility>

#include <ATen/Dispatch.h>
#include <ATen/Parallel.h>
#include <ATen/TensorOperators.h>
#include <ATen/ops/empty.h>

#include "framework/axes/environment.h"
#include "framework/base/errors.h"
#include "framework/base/text.h"

namespace lockstep {
namespace {

constexpr std::int64_t kElementsAtOnce = 32'768;

void check_probability(double p) {
  require(p >= 0 && p <= 1, "dropout: p must be in [0, 1], not ", p);
}

}  // namespace

at::Tensor dropout(const at::Tensor& input, double p, const Key& key) {
  check_probability(p);
  require(input.is_floating_point(), "dropout: the input must be floating, not ",
          input.scalar_type());
  if (p == 0) return input;
  const at::Tensor factors = at::empty(input.sizes(), input.options().requires_grad(false));
  if (p == 1) return input * factors.zero_();
  const auto threshold = static_cast<std::uint64_t>(std::ldexp(p, 64));
  AT_DISPATCH_FLOATING_TYPES_AND2(at::kHalf, at::kBFloat16, input.scalar_type(), "dropout", [&] {
    auto* const values = factors.data_ptr<scalar_t>();
    const auto kept = at::Scalar(1 / (1 - p)).to<scalar_t>();
    at::parallel_for(0, factors.numel(), kElementsAtOnce,
                     [&](std::int64_t begin, std::int64_t end) {
                       for (std::int64_t i = begin; i < end; ++i) {
                         const bool keeps = key.draw(static_cast<std::uint64_t>(i)) >= threshold;
                         values[i] = keeps ? kept : scalar_t(0);
                       }
                     });
  });
  return input * factors;
}

DropoutImpl::DropoutImpl(double p) : p_(p) {
  check_probability(p);
}

at::Tensor DropoutImpl::forward(const at::Tensor& input) {
  if (!is_training() || p_ == 0) return input;
  const auto place = place_.lock();
  if (!place) {
    throw Error(
        "a lockstep::Dropout in training mode belongs to no trainer that lives, which says what "
        "step it is: make a ZeroTrainer or a DataParallel for its module first, or use "
        "lockstep::dropout(input, p, key); for an evaluation call eval()");
  }
  const Environment* const here = current_environment();
  if (here == nullptr || here->identity() != place->replica) {
    throw Error(lockstep::str(
        "lockstep::Dropout '", path_,
        "' runs in a map inside the replica that trains it, or in another thread: use "
        "lockstep::dropout(input, p, key) there"));
  }
  if (step_ != place->step || microbatch_ != place->microbatch) calls_ = 0;
  step_ = place->step;
  microbatch_ = place->microbatch;
  return dropout(input, p_,
                 place->key.fold(static_cast<std::uint64_t>(step_))
                     .fold(static_cast<std::uint64_t>(microbatch_))
                     .fold(path_)
                     .fold(calls_++));
}

void DropoutImpl::pretty_print(std::ostream& stream) const {
  stream << "lockstep::Dropout(p=" << p_ << ")";
}

void DropoutImpl::follow(std::weak_ptr<const RandomPosition> place, std::string path) {
  place_ = std::move(place);
  path_ = std::move(path);
  step_ = -1;
}

}  // namespace lockstep
