#pragma once

#include <concepts>
#include <cstddef>
#include <span>
#include <vector>

#include "framework/watch/board.h"

namespace lockstep {

/// Which members of a group are in which worker. A member's place is its rank in the group; workers
/// are counted in the order of their first places.
class GroupLayout {
 public:
  /// As seen from worker `own_worker`, which has members in the group.
  GroupLayout(std::span<const GroupMember> members, int own_worker);
  /// Of a group with one member in each of `workers` workers, as seen from that of member `own`.
  [[nodiscard]] static GroupLayout one_each(int workers, int own);

  /// The job's number of each of the group's workers.
  [[nodiscard]] const std::vector<int>& worker_numbers() const noexcept { return numbers_; }
  [[nodiscard]] std::size_t workers() const noexcept { return numbers_.size(); }
  /// Which of them the own worker is.
  [[nodiscard]] std::size_t own() const noexcept { return own_; }

  [[nodiscard]] std::size_t size() const noexcept { return worker_of_.size(); }
  /// The worker of the member at `place`: which of the group's, not its number in the job.
  [[nodiscard]] std::size_t worker_of(std::integral auto place) const {
    return worker_of_[static_cast<std::size_t>(place)];
  }
  /// Its index among the members of its worker.
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

}  // namespace lockstep
