#include "framework/training/block_gathering.h"

#include <algorithm>
#include <utility>

#include <ATen/core/Tensor.h>
#include <c10/core/GradMode.h>
#include <torch/csrc/autograd/engine.h>

#include "framework/base/errors.h"

namespace lockstep {

at::Tensor Block::operator()(const at::Tensor& input) {
  return run(input, [this](const at::Tensor& own) { return forward(own); });
}

at::Tensor Block::run(const at::Tensor& input, const training::BlockForward& how) {
  // A view of this run's own: the gradients of its uses are added first, at all stages alike.
  const bool has_gradient = c10::GradMode::is_enabled() && input.requires_grad();
  const at::Tensor own_input = has_gradient ? input.view_as(input) : input;
  if (const auto runner = runner_.lock()) return runner->run(*this, own_input, how);
  if (had_runner_) {
    throw Error(
        "the parameters of block '" + name() +
        "' were cut into shards by a ZeroTrainer that is gone, or were still under way: call its "
        "release_parameters() before it ends");
  }
  return how(own_input);
}

}  // namespace lockstep

namespace lockstep::training {

BlockGathering::BlockGathering(const ModuleParameters& module, FlatParameters& parameters,
                               collectives::AxisQueue& queue, bool may_be_late,
                               std::function<void(std::size_t bucket)> left)
    : parameters_(parameters),
      queue_(queue),
      left_(std::move(left)),
      is_cut_(parameters.layout().has_groups()),
      parts_(module.blocks.size()) {
  for (std::size_t part = 0; part < parts_.size(); ++part) {
    part_of_.emplace(module.blocks[part], part);
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
      Part& part = parts_[static_cast<std::size_t>(module.block_of[item] - 1)];
      if (part.buckets.empty() || part.buckets.back() != bucket) part.buckets.push_back(bucket);
      ++part.items;
    }
  }
}

void BlockGathering::wait_for_late() {
  for (std::size_t bucket = late_.size(); bucket-- > 0;) parameters_.gather(bucket, queue_);
}

void BlockGathering::gather(std::size_t part) {
  for (const std::size_t bucket : parts_[part].buckets) parameters_.gather(bucket, queue_);
}

void BlockGathering::drop(std::size_t part) {
  if (keeps_everything() || keeps_graph_) return;
  for (const std::size_t bucket : parts_[part].buckets) parameters_.drop(bucket, queue_);
}

void BlockGathering::prefetch(std::size_t part) {
  const auto gathered = std::ranges::count_if(parts_, [this](const Part& each) {
    return !each.buckets.empty() && parameters_.is_gathered(each.buckets.front());
  });
  if (!queue_.overlaps() || gathered > 1) return;
  for (const std::size_t bucket : parts_[part].buckets) {
    parameters_.start_gathering(bucket, queue_);
  }
}

at::Tensor BlockGathering::run(Block& block, const at::Tensor& input, const BlockForward& forward) {
  const std::size_t part = part_of_.at(&block);
  gather(part);
  if (!is_cut_) return forward(input);
  // Forwards without a backward, of an evaluation, are in no order.
  if (c10::GradMode::is_enabled()) {
    order_.push_back(part);
    const std::size_t place = order_.size();
    if (place < last_order_.size() && last_order_[place - 1] == part) prefetch(last_order_[place]);
  }
  const bool ends_at_input = c10::GradMode::is_enabled() && input.requires_grad();
  const at::Tensor output = forward(input);
  if (parts_[part].users == 0) drop(part);
  if (c10::GradMode::is_enabled() && output.requires_grad() && !output.is_leaf()) {
    const std::weak_ptr<BlockGathering> weak = weak_from_this();
    // The hooks of a tensor run before the node that made it, and when all its users are done.
    output.register_hook([weak, part](const at::Tensor&) {
      if (const auto self = weak.lock()) self->before_backward(part);
    });
    parts_[part].ends_at_input = parts_[part].ends_at_input && ends_at_input;
    if (ends_at_input) {
      input.register_hook([weak, part](const at::Tensor&) {
        if (const auto self = weak.lock()) self->after_backward(part);
      });
    }
  }
  return output;
}

void BlockGathering::begin_backward() {
  is_own_ = true;
  is_other_ = false;
}

void BlockGathering::before_backward(std::size_t part) {
  if (!is_own_ && !is_other_) {
    is_other_ = true;
    torch::autograd::Engine::get_default_engine().queue_callback([weak = weak_from_this()] {
      const auto self = weak.lock();
      if (self && !self->is_own_) self->end_backward();
    });
  }
  if (c10::GradMode::is_enabled()) keeps_graph_ = true;  // create_graph
  Part& entered = parts_[part];
  if (entered.users++ == 0) entered.missing = entered.items;
  gather(part);
}

void BlockGathering::gradient_ready(std::size_t item) {
  const tree::FlatLayout& layout = parameters_.layout();
  const std::int64_t group = layout.buckets()[layout.place(item).bucket].group;
  if (group == 0) return;
  const auto index = static_cast<std::size_t>(group - 1);
  Part& part = parts_[index];
  if (part.missing > 0 && --part.missing == 0 && part.users == 1 && !part.ends_at_input) {
    after_backward(index);
  }
}

void BlockGathering::after_backward(std::size_t part) {
  Part& done = parts_[part];
  if (done.users == 0 || --done.users > 0) return;
  drop(part);
  if (done.ends_at_input && is_own_) {
    for (const std::size_t bucket : done.buckets) left_(bucket);
  }
  // The run before this one in the forward comes next, unless its backward has begun.
  std::size_t place = std::min(undone_, order_.size());
  while (place > 0 && order_[place - 1] != part) --place;
  if (place == 0) return;
  undone_ = --place;
  while (place-- > 0) {
    if (parts_[order_[place]].users > 0) continue;
    prefetch(order_[place]);
    break;
  }
}

void BlockGathering::end_backward() {
  is_own_ = false;
  is_other_ = false;
  if (!order_.empty()) last_order_ = std::exchange(order_, {});
  undone_ = kAll;
  for (std::size_t part = 0; part < parts_.size(); ++part) {
    parts_[part].users = 0;
    parts_[part].ends_at_input = true;
    drop(part);
  }
}

void BlockGathering::end_step() {
  if (std::exchange(keeps_graph_, false)) end_backward();
}

void BlockGathering::gather_everything() {
  for (std::size_t part = 0; part < parts_.size(); ++part) gather(part);
}

// The result points at nothing: it holds the part until it ends.
std::shared_ptr<void> BlockGathering::hold(std::size_t part) {
  gather(part);
  return {nullptr, [self = shared_from_this(), part](void*) {
            if (self->parts_[part].users == 0) self->drop(part);
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
