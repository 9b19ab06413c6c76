#pragma once

#include <atomic>
#include <cstddef>
#include <memory>
#include <span>
#include <vector>

#include "framework/comm/communicator.h"

namespace lockstep::comm {

/// A verb on large buffers, of replicas that are all threads of this worker. It is cut into parts,
/// which the threads do side by side, each reading the others' buffers in place.
class LocalWork {
 public:
  /// For an all_reduce, reduce_scatter or all_gather. `verbs` has the calls of all replicas in the
  /// order of their places. They and their buffers must stay until all parts are done.
  explicit LocalWork(std::span<const Verb* const> verbs);
  /// nullptr for a verb that one thread does as fast.
  [[nodiscard]] static std::unique_ptr<LocalWork> of(std::span<const Verb* const> verbs);

  /// Does parts that no other thread has taken, until none is left. Several threads at once.
  void help() noexcept;

 private:
  void do_part(std::size_t index) const;

  std::vector<const Verb*> verbs_;
  std::size_t item_bytes_;  // an item is a buffer to write: see do_part
  std::size_t parts_per_item_;
  std::size_t parts_;
  std::atomic<std::size_t> next_{0};
};

}  // namespace lockstep::comm
