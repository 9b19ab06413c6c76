#include "framework/training/block_gathering.h"

#include <utility>

#include <ATen/core/Tensor.h>
#include <c10/core/GradMode.h>
#include <torch/csrc/autograd/engine.h>

#include "framework/base/errors.h"
#include "framework/base/text.h"

namespace lockstep {

BlockGathering::BlockGathering(const std::vector<Block*>& blocks, const FlatLayout& layout,
                               FlatParameters& parameters, AxisQueue& queue,
                               std::function<void(std::size_t bucket)> left)
    : parameters_(parameters), queue_(queue), left_(std::move(left)), parts_(blocks.size()) {
  for (std::size_t part = 0; part < blocks.size(); ++part) part_of_.emplace(blocks[part], part);
  for (std::size_t bucket = 0; bucket < layout.buckets().size(); ++bucket) {
    const std::int64_t group = layout.buckets()[bucket].group;
    if (group == 0) continue;
    const auto part = static_cast<std::size_t>(group - 1);
    parts_[part].buckets.push_back(bucket);
    for (const std::size_t item : layout.buckets()[bucket].items) {
      ++parts_[part].items;
      part_of_item_.emplace(item, part);
    }
  }
}

void BlockGathering::gather(std::size_t part) {
  for (const std::size_t bucket : parts_[part].buckets) parameters_.gather(bucket, queue_);
}

void BlockGathering::drop(std::size_t part) {
  if (keeps_everything() || keeps_graph_) return;
  for (const std::size_t bucket : parts_[part].buckets) parameters_.drop(bucket, queue_);
}

std::size_t BlockGathering::gathered_parts() const {
  std::size_t count = 0;
  for (const Part& part : parts_) {
    count += !part.buckets.empty() && parameters_.is_gathered(part.buckets.front()) ? 1 : 0;
  }
  return count;
}

void BlockGathering::prefetch(std::size_t part) {
  if (!queue_.overlaps() || gathered_parts() > 1) return;
  for (const std::size_t bucket : parts_[part].buckets) {
    parameters_.start_gathering(bucket, queue_);
  }
}

void BlockGathering::close_order() noexcept {
  if (!order_.empty()) last_order_ = std::exchange(order_, {});
}

at::Tensor BlockGathering::run(Block& block, const at::Tensor& input) {
  const std::size_t part = part_of_.at(&block);
  gather(part);
  // Forwards without a backward, of an evaluation, are in no order.
  if (c10::GradMode::is_enabled()) {
    order_.push_back(part);
    const std::size_t place = order_.size();
    if (place < last_order_.size() && last_order_[place - 1] == part) prefetch(last_order_[place]);
  }
  const bool ends_at_input = c10::GradMode::is_enabled() && input.requires_grad();
  // Of its own, so that its gradient is there when this run's backward is over: others may use the
  // input, too.
  const at::Tensor own_input = ends_at_input ? input.view_as(input) : input;
  const at::Tensor output = block.forward(own_input);
  if (parts_[part].users == 0) drop(part);
  if (c10::GradMode::is_enabled() && output.requires_grad() && !output.is_leaf()) {
    const std::weak_ptr<BlockGathering> weak = weak_from_this();
    // The hooks of a tensor run before the node that made it, and when all its users are done.
    output.register_hook([weak, part](const at::Tensor&) {
      if (const auto self = weak.lock()) self->before_backward(part);
    });
    parts_[part].ends_at_input = parts_[part].ends_at_input && ends_at_input;
    if (ends_at_input) {
      own_input.register_hook([weak, part](const at::Tensor&) {
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
  const auto found = part_of_item_.find(item);
  if (found == part_of_item_.end()) return;
  Part& part = parts_[found->second];
  if (part.missing > 0 && --part.missing == 0 && part.users == 1 && !part.ends_at_input) {
    after_backward(found->second);
  }
}

void BlockGathering::after_backward(std::size_t part) {
  Part& done = parts_[part];
  if (done.users == 0 || --done.users > 0) return;
  drop(part);
  if (done.ends_at_input && is_own_) {
    for (const std::size_t bucket : done.buckets) left_(bucket);
  }
  // What comes next ran before it in the forward; that may have begun already.
  std::size_t place = order_.size();
  while (place > 0 && order_[place - 1] != part) --place;
  while (place-- > 1) {
    if (parts_[order_[place - 1]].users > 0) continue;
    prefetch(order_[place - 1]);
    break;
  }
}

void BlockGathering::end_backward() {
  is_own_ = false;
  is_other_ = false;
  close_order();
  for (std::size_t part = 0; part < parts_.size(); ++part) {
    parts_[part].users = 0;
    parts_[part].ends_at_input = true;
    drop(part);
  }
}

void BlockGathering::end_step() {
  if (!std::exchange(keeps_graph_, false)) return;
  end_backward();
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
  gather_everything();
  ++keeps_everything_;
  return {nullptr, [self = shared_from_this()](void*) {
            if (--self->keeps_everything_ == 0) self->end_backward();
          }};
}

}  // namespace lockstep
