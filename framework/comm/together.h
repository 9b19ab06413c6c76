#pragma once

#include <atomic>
#include <cstddef>
#include <memory>
#include <span>
#include <utility>
#include <vector>

#include "framework/base/bytes.h"
#include "framework/base/non_copyable.h"
#include "framework/base/range.h"
#include "framework/comm/communicator.h"
#include "framework/comm/group_layout.h"
#include "framework/comm/scratch.h"

namespace lockstep::comm {

/// The members of a group that share memory: the threads of a worker, or the processes of a host
/// ("worker" below). One thread speaks for all of them to the other workers, through a Communicator
/// that joins the workers. In reductions each worker sends the sums of the subtrees of the
/// canonical order that it has completely: see partial_sums.h. One thread at a time may use it.
class Together : private NonCopyable {
 public:
  using Verbs = std::span<const Verb* const>;

  /// `workers` joins the workers of `layout` in its order; nullptr if this one has all members.
  Together(const GroupLayout& layout, std::shared_ptr<Communicator> workers)
      : layout_(layout), workers_(std::move(workers)) {}

  [[nodiscard]] Communicator* workers() const noexcept { return workers_.get(); }
  /// Does the calls of all members here; `verbs` is in the order of their places.
  void run(Verbs verbs);

 private:
  using Pieces = std::vector<ConstBytes>;
  using Ranges = std::vector<BasicRange<std::size_t>>;

  [[nodiscard]] std::vector<Pieces> exchange(std::vector<Pieces> sent,
                                             const std::vector<std::vector<std::size_t>>& sizes);
  void add_up(const Pieces& sums, const std::vector<Ranges>& ranges, std::span<const Bytes> results,
              const Verb& verb);
  Pieces own_sums(Verbs verbs);
  void all_reduce(Verbs verbs);
  void all_reduce_sums(const Pieces& sums, const Verb& verb);
  void reduce_scatter(Verbs verbs);
  void all_gather(Verbs verbs);
  void all_to_all(Verbs verbs);
  void broadcast(Verbs verbs);
  void allocate(Verbs verbs);

  const GroupLayout& layout_;
  std::shared_ptr<Communicator> workers_;
  Scratch scratch_;
};

/// An all_reduce, reduce_scatter or all_gather of replicas that are all threads of this worker. It
/// is cut into parts, which the threads do side by side, each reading the others' buffers in place.
class LocalWork {
 public:
  /// `verbs` has the calls of all replicas in the order of their places. They and their buffers
  /// must stay until all parts are done.
  explicit LocalWork(Together::Verbs verbs);
  /// Returns nullptr for a verb that one thread does as fast.
  [[nodiscard]] static std::unique_ptr<LocalWork> of(Together::Verbs verbs);

  /// Does parts that no other thread has taken, until none is left. Several threads may do so at
  /// once. Throws if memory runs out.
  void help() {
    for (std::size_t part = next_++; part < parts_; part = next_++) do_part(part);
  }

 private:
  void do_part(std::size_t index) const;

  std::vector<const Verb*> verbs_;
  std::size_t item_bytes_;  // an item is a buffer to write: see do_part
  std::size_t parts_per_item_;
  std::size_t parts_;
  std::atomic<std::size_t> next_{0};
};

}  // namespace lockstep::comm
