#pragma once

#include <concepts>
#include <cstddef>
#include <cstdint>
#include <exception>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include "framework/base/bytes.h"
#include "framework/base/errors.h"
#include "framework/base/non_copyable.h"
#include "framework/comm/communicator.h"
#include "framework/comm/schedule_choice.h"
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
  /// Whether all workers have as many members, next to each other.
  [[nodiscard]] bool has_blocks() const;

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

/// The members of a group that share memory: the threads of a worker, the processes of a host, or
/// one process by itself. They do each verb together. Messages to the group's other workers do the
/// rest. Derived classes say how the members meet.
///
/// In reductions, each worker sends the sums of the subtrees of the canonical order that it has
/// completely: see partial_sums.h.
class LocalMembers : private NonCopyable {
 public:
  /// `outer` joins the workers of `layout` in its order. It is nullptr if this worker has all
  /// members, or if the derived class does without.
  explicit LocalMembers(GroupLayout layout, std::shared_ptr<Communicator> outer = nullptr)
      : layout_(std::move(layout)), outer_(std::move(outer)) {}
  virtual ~LocalMembers() = default;

  [[nodiscard]] const GroupLayout& layout() const noexcept { return layout_; }

  /// Does `verb`, whose arguments were checked, of the member at `place` together with those of all
  /// other members, here and elsewhere. Each member here calls this, with the same `mark`.
  virtual void meet(int place, std::uint64_t mark, const Verb& verb) = 0;

  // The methods below do what Communicator's methods of the same names do.

  /// The members here of a subgroup. Its caller is the member that will be at `place` there.
  [[nodiscard]] virtual std::shared_ptr<LocalMembers> subgroup(std::span<const int> members,
                                                               int place,
                                                               std::uint64_t channel) = 0;
  /// Ends the verbs of all members here.
  virtual void interrupt(const std::exception_ptr& error) noexcept = 0;
  /// The same; a backend ends all groups that share its connections.
  virtual void abort(const std::string& reason) noexcept {
    interrupt(std::make_exception_ptr(Aborted(reason)));
  }
  [[nodiscard]] virtual bool is_network() const noexcept { return outer_ && outer_->is_network(); }
  [[nodiscard]] virtual bool shares_memory() const noexcept {
    return layout_.workers() < layout_.size() || (outer_ && outer_->shares_memory());
  }
  [[nodiscard]] virtual std::optional<LinkSpeed> link_speed() const {
    return outer_ ? outer_->link_speed() : std::nullopt;
  }
  virtual void set_link_speed(const LinkSpeed& speed) {
    if (outer_) outer_->set_link_speed(speed);
  }
  [[nodiscard]] virtual SharedAddress shared_address(ConstBytes memory) const {
    return outer_ ? outer_->shared_address(memory) : SharedAddress{};
  }
  [[nodiscard]] virtual const Ledger& ledger() const noexcept {
    return outer_ ? outer_->ledger() : own_ledger_;
  }

 protected:
  [[nodiscard]] Communicator* outer() const noexcept { return outer_.get(); }
  /// Does a verb. `verbs` has the calls of the members here, in the order of their places. One
  /// thread at a time.
  void run_all(std::uint64_t mark, std::span<const Verb* const> verbs);
  /// Sends sent[w] to each other worker w and receives received[w] from it; both sides leave out
  /// empty messages. For members without an outer Communicator.
  virtual void transfer(std::uint64_t /*mark*/, std::span<const ConstBytes> /*sent*/,
                        std::span<const Bytes> /*received*/) {}

 private:
  class Together;

  // A piece to be received. If `data` is null, the exchange sets it to where the piece is.
  struct Incoming {
    std::size_t size;
    std::byte* data = nullptr;
  };
  // What goes to (Outbox) or comes from (Inbox) each worker of the group, in its order.
  using Outbox = std::vector<std::vector<ConstBytes>>;
  using Inbox = std::vector<std::vector<Incoming>>;

  void exchange(std::uint64_t mark, const Outbox& out, Inbox& in);
  const ScheduleChoice& schedules();

  GroupLayout layout_;
  std::shared_ptr<Communicator> outer_;
  Scratch scratch_;
  std::optional<ScheduleChoice> schedules_;
  Ledger own_ledger_;
};

/// A group whose members are spread over workers: members that share memory, joined with those of
/// other workers, as a rule by an outer Communicator. Results have the bits of any other
/// Communicator.
class Hierarchy : public Communicator {
 public:
  /// The Communicator of the member at `place`, one of `local`.
  Hierarchy(std::shared_ptr<LocalMembers> local, int place)
      : Communicator(place, static_cast<int>(local->layout().size())), local_(std::move(local)) {}

  /// Which of the group's members are in which worker.
  [[nodiscard]] const GroupLayout& layout() const noexcept { return local_->layout(); }

  void run(const Verb& verb) override { local_->meet(rank(), next_mark(), verb); }
  void abort(const std::string& reason) noexcept override { local_->abort(reason); }
  void interrupt(const std::exception_ptr& error) noexcept override { local_->interrupt(error); }
  [[nodiscard]] bool is_network() const noexcept override { return local_->is_network(); }
  [[nodiscard]] bool shares_memory() const noexcept override { return local_->shares_memory(); }
  [[nodiscard]] std::optional<LinkSpeed> link_speed() const override {
    return local_->link_speed();
  }
  void set_link_speed(const LinkSpeed& speed) override { local_->set_link_speed(speed); }
  [[nodiscard]] SharedAddress shared_address(ConstBytes memory) const override {
    return local_->shared_address(memory);
  }
  [[nodiscard]] const Ledger& ledger() const noexcept override { return local_->ledger(); }

 private:
  [[nodiscard]] std::shared_ptr<Communicator> do_subgroup(std::span<const int> members, int place,
                                                          std::uint64_t channel) override {
    return std::make_shared<Hierarchy>(local_->subgroup(members, place, channel), place);
  }

  std::shared_ptr<LocalMembers> local_;
};

}  // namespace lockstep::comm
