#include "framework/training/block_gathering.h"

#include <algorithm>

#include <ATen/core/Tensor.h>
#include <c10/core/GradMode.h>
#include <torch/csrc/autograd/engine.h>

#include "framework/base/errors.h"
#include "framework/training/forward_place.h"

namespace lockstep {

at::Tensor Block::operator()(const at::Tensor& input) {
  return run(input, [this](const at::Tensor& own) { return forward(own); });
}

at::Tensor Block::run(const at::Tensor& input, const training::BlockForward& how) {
  // A view of this run's own: the gradients of its uses are added first, at all stages alike.
  const bool has_gradient = c10::GradMode::is_enabled() && input.requires_grad();
  const at::Tensor own_input = has_gradient ? input.view_as(input) : input;
  if (training::looks_for_place) {
    // No runner, which may wait for other replicas.
    require<Error>(std::ranges::none_of(parameters(), training::lacks_memory), "block '", name(),
                   "' is not gathered");
    return how(own_input);
  }
  if (const auto runner = runner_.lock()) return runner->run(*this, own_input, how);
  require<Error>(!had_runner_, "the parameters of block '", name(),
                 "' were cut into shards by a ZeroTrainer that is gone, or were still under way: "
                 "call its release_parameters() before it ends");
  return how(own_input);
}

}  // namespace lockstep

namespace lockstep::training {

BlockGathering::BlockGathering(const ModuleParameters& module, FlatParameters& parameters,
                               FlatGradients& gradients, collectives::AxisQueue& queue,
                               bool may_be_late)
    : parameters_(parameters),
      gradients_(gradients),
      queue_(queue),
      is_cut_(parameters.layout().has_groups()),
      states_(module.blocks.size()) {
  for (std::size_t index = 0; index < states_.size(); ++index) {
    index_of_.emplace(module.blocks[index], index);
  }
  const std::vector<tree::FlatBucket>& buckets = parameters.layout().buckets();
  const auto is_in_block = [&](std::size_t item) { return module.block_of[item] != 0; };
  for (std::size_t bucket = 0; bucket < buckets.size(); ++bucket) {
    if (!std::ranges::all_of(buckets[bucket].items, is_in_block)) continue;
    if (may_be_late && queue.overlaps() && !is_cut_) {
      late_.resize(buckets.size());
      late_[bucket] = true;
    }
    for (const std::size_t item : buckets[bucket].items) {
      BlockState& state = states_[static_cast<std::size_t>(module.block_of[item] - 1)];
      if (state.buckets.empty() || state.buckets.back() != bucket) state.buckets.push_back(bucket);
      ++state.items;
    }
  }
}

void BlockGathering::wait_for_late() {
  for (std::size_t bucket = late_.size(); bucket-- > 0;) parameters_.gather(bucket, queue_);
}

void BlockGathering::gather(std::size_t index) {
  for (const std::size_t bucket : states_[index].buckets) parameters_.gather(bucket, queue_);
}

void BlockGathering::drop(std::size_t index) {
  if (keeps_everything() || keeps_graph_) return;
  for (const std::size_t bucket : states_[index].buckets) parameters_.drop(bucket, queue_);
}

void BlockGathering::prefetch(std::size_t index) {
  const auto gathered = std::ranges::count_if(states_, [this](const BlockState& each) {
    return !each.buckets.empty() && parameters_.is_gathered(each.buckets.front());
  });
  if (!queue_.overlaps() || gathered > 1) return;
  for (const std::size_t bucket : states_[index].buckets) {
    parameters_.start_gathering(bucket, queue_);
  }
}

at::Tensor BlockGathering::run(Block& block, const at::Tensor& input, const BlockForward& forward) {
  const std::size_t index = index_of_.at(&block);
  gather(index);
  if (!is_cut_) return forward(input);
  // Forwards without a backward, of an evaluation, are in no order.
  if (c10::GradMode::is_enabled()) {
    order_.push_back(index);
    const std::size_t place = order_.size();
    if (place < last_order_.size() && last_order_[place - 1] == index) prefetch(last_order_[place]);
  }
  const bool ends_at_input = c10::GradMode::is_enabled() && input.requires_grad();
  const at::Tensor output = forward(input);
  if (states_[index].users == 0) drop(index);
  if (c10::GradMode::is_enabled() && output.requires_grad() && !output.is_leaf()) {
    const std::weak_ptr<BlockGathering> weak = weak_from_this();
    // The hooks of a tensor run before the node that made it, and when all its users are done.
    output.register_hook([weak, index](const at::Tensor&) {
      if (const auto self = weak.lock()) self->before_backward(index);
    });
    states_[index].ends_at_input = states_[index].ends_at_input && ends_at_input;
    if (ends_at_input) {
      input.register_hook([weak, index](const at::Tensor&) {
        if (const auto self = weak.lock()) self->after_backward(index);
      });
    }
  }
  return output;
}

void BlockGathering::before_backward(std::size_t index) {
  if (!is_own_ && !is_other_) {
    is_other_ = true;
    torch::autograd::Engine::get_default_engine().queue_callback([weak = weak_from_this()] {
      const auto self = weak.lock();
      if (self && !self->is_own_) self->end_backward();
    });
  }
  if (c10::GradMode::is_enabled()) keeps_graph_ = true;  // create_graph
  BlockState& entered = states_[index];
  if (entered.users++ == 0) entered.missing = entered.items;
  gather(index);
}

void BlockGathering::gradient_ready(std::size_t item) {
  const tree::FlatLayout& layout = parameters_.layout();
  const std::int64_t group = layout.buckets()[layout.place(item).bucket].group;
  if (group == 0) return;
  const auto index = static_cast<std::size_t>(group - 1);
  BlockState& state = states_[index];
  if (state.missing > 0 && --state.missing == 0 && state.users == 1 && !state.ends_at_input) {
    after_backward(index);
  }
}

void BlockGathering::after_backward(std::size_t index) {
  BlockState& done = states_[index];
  if (done.users == 0 || --done.users > 0) return;
  drop(index);
  if (done.ends_at_input && is_own_) {
    for (const std::size_t bucket : done.buckets) gradients_.close(bucket);
  }
  // The run before this one in the forward comes next, unless its backward has begun.
  std::size_t place = std::min(undone_, order_.size());
  while (place > 0 && order_[place - 1] != index) --place;
  if (place == 0) return;
  undone_ = --place;
  while (place-- > 0) {
    if (states_[order_[place]].users > 0) continue;
    prefetch(order_[place]);
    break;
  }
}

void BlockGathering::end_backward() {
  is_own_ = false;
  is_other_ = false;
  if (!order_.empty()) last_order_ = std::exchange(order_, {});
  undone_ = kAll;
  for (std::size_t index = 0; index < states_.size(); ++index) {
    states_[index].users = 0;
    states_[index].ends_at_input = true;
    drop(index);
  }
}

void BlockGathering::gather_everything() {
  for (std::size_t index = 0; index < states_.size(); ++index) gather(index);
}

// The result points at nothing: it holds the block until it ends.
std::shared_ptr<void> BlockGathering::hold(std::size_t index) {
  gather(index);
  return {nullptr, [self = shared_from_this(), index](void*) {
            if (self->states_[index].users == 0) self->drop(index);
          }};
}

std::shared_ptr<void> BlockGathering::hold_everything() {
  if (!is_cut_) return nullptr;
  gather_everything();
  ++keeps_everything_;
  return {nullptr, [self = shared_from_this()](void*) {
            if (--self->keeps_everything_ == 0) self->end_backward();
          }};
}

}  // namespace lockstep::training
