#pragma once

#include <algorithm>
#include <concepts>
#include <cstddef>
#include <span>
#include <vector>

#include "framework/calls/call_table.h"
#include "framework/reduce/partial_sums.h"

namespace lockstep::comm {

/// The division of a group's members among workers. For a group of workers on several hosts
/// (host_members.cpp) the members are workers, and a "worker" here is a host. A member's place is
/// its rank in the group; workers are counted in the order of their first places.
class GroupLayout {
 public:
  /// Lays out `members` as worker `own_worker` sees them, which has members in the group.
  GroupLayout(std::span<const calls::GroupMember> members, int own_worker) {
    for (const calls::GroupMember& member : members) {
      const auto known = std::ranges::find(numbers_, member.worker);
      const auto worker = static_cast<std::size_t>(known - numbers_.begin());
      if (known == numbers_.end()) {
        numbers_.push_back(member.worker);
        places_.emplace_back();
      }
      if (member.worker == own_worker) own_ = worker;
      index_of_.push_back(places_[worker].size());
      places_[worker].push_back(static_cast<int>(worker_of_.size()));
      worker_of_.push_back(worker);
    }
    const std::size_t block = own_places().size();
    for (std::size_t place = 0; place < size(); ++place) {
      has_blocks_ = has_blocks_ && size() == block * workers() && worker_of(place) == place / block;
    }
    for (const auto type : {ElementType::float16, ElementType::float32}) {
      plans_.emplace_back(places_, type, ReduceOp::sum);
    }
  }

  /// Returns the job's number of each of the group's workers.
  [[nodiscard]] const std::vector<int>& worker_numbers() const noexcept { return numbers_; }
  [[nodiscard]] std::size_t workers() const noexcept { return numbers_.size(); }
  /// Returns the own worker's index among the group's workers.
  [[nodiscard]] std::size_t own() const noexcept { return own_; }

  [[nodiscard]] std::size_t size() const noexcept { return worker_of_.size(); }
  /// Returns the worker of the member at `place`: an index in the group, not a number in the job.
  [[nodiscard]] std::size_t worker_of(std::integral auto place) const {
    return worker_of_[static_cast<std::size_t>(place)];
  }
  /// Returns the member's index among the members of its worker.
  [[nodiscard]] std::size_t index_of(std::integral auto place) const {
    return index_of_[static_cast<std::size_t>(place)];
  }
  /// Returns the places of each worker's members, ascending.
  [[nodiscard]] const std::vector<std::vector<int>>& places() const noexcept { return places_; }
  [[nodiscard]] const std::vector<int>& own_places() const { return places_[own_]; }
  /// Returns the number of members of the largest worker.
  [[nodiscard]] std::size_t most_members() const {
    return std::ranges::max(places_, {}, &std::vector<int>::size).size();
  }
  /// True when all workers have equally many members, next to each other.
  [[nodiscard]] bool has_blocks() const noexcept { return has_blocks_; }
  /// Returns the parts of a reduction that each worker does alone.
  [[nodiscard]] const reduce::ReductionPlan& plan(ElementType type, ReduceOp op) const {
    return plans_[reduce::has_partial_sums(type, op) ? 1 : 0];
  }

 private:
  std::vector<int> numbers_;
  std::size_t own_ = 0;
  std::vector<std::vector<int>> places_;
  std::vector<std::size_t> worker_of_;
  std::vector<std::size_t> index_of_;
  bool has_blocks_ = true;
  std::vector<reduce::ReductionPlan> plans_;  // [0]: of inputs; [1]: of partial sums
};

}  // namespace lockstep::comm
