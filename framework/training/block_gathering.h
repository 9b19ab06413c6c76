#pragma once

#include <cstddef>
#include <limits>
#include <map>
#include <memory>
#include <utility>
#include <vector>

#include "framework/collectives/axis_queue.h"
#include "framework/training/block.h"
#include "framework/training/flat_gradients.h"
#include "framework/training/flat_parameters.h"
#include "framework/training/module_parameters.h"

namespace lockstep::training {

/// Sees to it that blocks' parameters are there when they run. Where all replicas keep whole ones,
/// they are, unless they come late: updates then travel while the next forward runs, in the reverse
/// order of the backward, and each block waits for its own.
///
/// Cut ones are gathered for a run and dropped afterwards, in forward and backward. At most two
/// blocks are gathered at a time: the one that runs, and the one before (in a backward) or, over a
/// network, the next one in the last forward's order.
class BlockGathering final : public BlockRunner,
                             public std::enable_shared_from_this<BlockGathering> {
 public:
  /// `module` has the parameters that `parameters` keeps, and its blocks are the groups 1, 2, … of
  /// cut ones. In a backward of the trainer, buckets of `gradients` are closed where such a block's
  /// part is over, at the same places on all replicas; not for a block that ran on an input without
  /// a gradient. `may_be_late`: updates may be, where `queue` overlaps and nothing is cut.
  BlockGathering(const ModuleParameters& module, FlatParameters& parameters,
                 FlatGradients& gradients, collectives::AxisQueue& queue, bool may_be_late);

  at::Tensor run(Block& block, const at::Tensor& input, const BlockForward& forward) override;

  /// Whether blocks need it to run.
  [[nodiscard]] bool is_needed() const noexcept { return is_cut_ || !late_.empty(); }
  [[nodiscard]] bool is_cut() const noexcept { return is_cut_; }
  /// FlatParameters::publish(). Buckets with parameters of no block do not come late.
  void publish() { parameters_.publish(late_, &queue_); }
  /// Waits until all updates are there. All replicas together.
  void wait_for_late();

  [[nodiscard]] bool keeps_everything() const noexcept { return keeps_everything_ > 0; }
  /// A backward of the trainer begins. Other backwards (autograd::grad) gather and drop blocks,
  /// too.
  void begin_backward() {
    is_own_ = true;
    is_other_ = false;
  }
  /// The gradient of parameter `item` has been computed.
  void gradient_ready(std::size_t item);
  /// A backward has ended: drops blocks that are still gathered.
  void end_backward();
  /// A step ends: drops blocks that a backward with create_graph has kept.
  void end_step() {
    if (std::exchange(keeps_graph_, false)) end_backward();
  }

  /// Gathers all cut blocks until end_backward(), or longer while they are held.
  void gather_everything();
  /// While the result lives, the parameters of blocks[index], or of all blocks, are gathered.
  /// Nothing to hold, where none is cut, is nullptr.
  [[nodiscard]] std::shared_ptr<void> hold(std::size_t index);
  [[nodiscard]] std::shared_ptr<void> hold_everything();

 private:
  struct BlockState {
    std::vector<std::size_t> buckets;
    std::size_t items = 0;      // its parameters
    bool ends_at_input = true;  // a run's backward is over when its input's gradient is there
    int users = 0;              // runs whose backward has begun and not ended
    std::size_t missing = 0;    // parameters whose gradient this backward has not computed yet
  };
  static constexpr auto kAll = std::numeric_limits<std::size_t>::max();

  void gather(std::size_t index);
  void drop(std::size_t index);
  void prefetch(std::size_t index);
  void before_backward(std::size_t index);
  void after_backward(std::size_t index);

  FlatParameters& parameters_;
  FlatGradients& gradients_;
  collectives::AxisQueue& queue_;
  bool is_cut_;             // that is, blocks are
  std::vector<bool> late_;  // by bucket; empty: none comes late
  std::vector<BlockState> states_;
  std::map<const Block*, std::size_t> index_of_;
  std::vector<std::size_t> last_order_;  // of the blocks in the last forward
  std::vector<std::size_t> order_;       // in this one, so far
  std::size_t undone_ = kAll;  // how many of order_'s first runs have not ended their backward
  int keeps_everything_ = 0;   // how many ask for it
  bool keeps_graph_ = false;   // a graph of the backward may need all that was gathered
  bool is_own_ = false;        // the current backward is the trainer's
  bool is_other_ = false;      // or another, whose end is awaited
};

}  // namespace lockstep::training
