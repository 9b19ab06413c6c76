#pragma once

#include <concepts>
#include <cstddef>
#include <functional>
#include <memory>
#include <span>
#include <vector>

#include "framework/base/bytes.h"
#include "framework/comm/communicator.h"
#include "framework/watch/board.h"

namespace lockstep::comm {

/// Which members of a group are in which worker. A member's place is its rank in the group; workers
/// are counted in the order of their first places.
class GroupLayout {
 public:
  /// As seen from worker `own_worker`, which has members in the group.
  GroupLayout(std::span<const watch::GroupMember> members, int own_worker);
  /// A group with one member in each of `workers` workers, as seen from the worker of member `own`.
  [[nodiscard]] static GroupLayout one_each(int workers, int own);

  /// The job's number of each of the group's workers.
  [[nodiscard]] const std::vector<int>& worker_numbers() const noexcept { return numbers_; }
  [[nodiscard]] std::size_t workers() const noexcept { return numbers_.size(); }
  /// The own worker's index among the group's workers.
  [[nodiscard]] std::size_t own() const noexcept { return own_; }

  [[nodiscard]] std::size_t size() const noexcept { return worker_of_.size(); }
  /// The worker of the member at `place`: its index in the group, not its number in the job.
  [[nodiscard]] std::size_t worker_of(std::integral auto place) const {
    return worker_of_[static_cast<std::size_t>(place)];
  }
  /// The member's index among the members of its worker.
  [[nodiscard]] std::size_t index_of(std::integral auto place) const {
    return index_of_[static_cast<std::size_t>(place)];
  }
  /// The members of each worker, ascending.
  [[nodiscard]] const std::vector<std::vector<int>>& places() const noexcept { return places_; }
  [[nodiscard]] const std::vector<int>& own_places() const { return places_[own_]; }

 private:
  std::vector<int> numbers_;
  std::size_t own_ = 0;
  std::vector<std::vector<int>> places_;
  std::vector<std::size_t> worker_of_;
  std::vector<std::size_t> index_of_;
};

/// Memory for one verb. Up to kKept bytes of each piece are kept for the next verb: fresh pages
/// cost more than the copies into them.
class Scratch {
 public:
  /// Larger than a bucket of gradients is by default.
  static constexpr std::size_t kKept = std::size_t{32} << 20;

  /// `bytes` of memory for the caller until clear(). It is not zeroed.
  [[nodiscard]] Bytes take(std::size_t bytes) {
    if (used_ == blocks_.size()) blocks_.emplace_back();
    Block& block = blocks_[used_++];
    if (bytes > block.size) {
      block.memory = std::make_unique_for_overwrite<std::byte[]>(bytes);
      block.size = bytes;
    }
    return {block.memory.get(), bytes};
  }
  /// Takes back all memory that take() gave.
  void clear() noexcept {
    for (Block& block : blocks_) {
      if (block.size > kKept) block = {};
    }
    used_ = 0;
  }

 private:
  struct Block {
    std::unique_ptr<std::byte[]> memory;
    std::size_t size = 0;
  };
  std::vector<Block> blocks_;
  std::size_t used_ = 0;
};

/// A group whose members are spread over workers. The members in this worker share memory and do
/// each verb together; messages between workers do the rest. The members are threads of processes
/// that a Communicator joins, or one a process, joined by a network. Results have the bits of any
/// other Communicator.
///
/// In reductions, each worker sends the sums of the subtrees of the canonical order that it has
/// completely: see partial_sums.h. For one thread at a time.
class Hierarchy {
 public:
  /// A message to be received. If `data` is null, the exchange sets it to where the message is.
  struct Incoming {
    std::size_t size;
    std::byte* data = nullptr;
  };
  /// The messages to (Outbox) or from (Inbox) each worker of the group, in its order.
  using Outbox = std::vector<std::vector<ConstBytes>>;
  using Inbox = std::vector<std::vector<Incoming>>;
  /// Sends the messages in `out` to the other workers and receives those in `in`. The own worker's
  /// entries are left alone. Received messages are put into memory of the Scratch.
  using Exchange = std::function<void(const Outbox& out, Inbox& in, Scratch& scratch)>;

  /// The workers of `layout` reach each other by `exchange`.
  Hierarchy(GroupLayout layout, Exchange exchange);
  /// `outer` joins the workers of `layout` in its order; nullptr if this worker has all members.
  Hierarchy(GroupLayout layout, std::shared_ptr<Communicator> outer);

  Hierarchy(const Hierarchy&) = delete;
  Hierarchy& operator=(const Hierarchy&) = delete;

  [[nodiscard]] const GroupLayout& layout() const noexcept { return layout_; }
  [[nodiscard]] Communicator* outer() const noexcept { return outer_.get(); }

  /// Does a verb whose arguments were checked. `verbs` has the calls of the members in this worker,
  /// in the order of their places.
  void run(std::span<const Verb* const> verbs);

 private:
  GroupLayout layout_;
  Exchange exchange_;
  std::shared_ptr<Communicator> outer_;
  Scratch scratch_;
};

}  // namespace lockstep::comm
