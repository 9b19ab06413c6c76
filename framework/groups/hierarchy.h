#pragma once

#include <memory>
#include <span>

#include "framework/comm/communicator.h"
#include "framework/groups/common_buffers.h"
#include "framework/groups/group_layout.h"

namespace lockstep {

/// Members of a group that share memory, here the threads of one worker, joined with the group's
/// other members by an outer Communicator of the workers. It does a verb for all of its members at
/// once; results have the bits of any other Communicator.
///
/// Of inputs to be reduced, workers send each other the sums of those which they have complete
/// subtrees of: see partial_sums.h.
class Hierarchy {
 public:
  /// `outer` joins the workers of `layout` in its order; nullptr: all members are here. `common`
  /// are the buffers that the worker shares with others.
  Hierarchy(GroupLayout layout, std::shared_ptr<Communicator> outer, CommonBuffers& common);

  [[nodiscard]] const GroupLayout& layout() const noexcept { return layout_; }
  [[nodiscard]] Communicator* outer() const noexcept { return outer_.get(); }
  /// Whether each worker has one member: then the outer group is the group.
  [[nodiscard]] bool is_outer() const noexcept {
    return outer_ != nullptr && layout_.workers() == layout_.size();
  }

  /// Does a verb, whose arguments were checked: `verbs` are those of the members here, in the order
  /// of their places.
  void run(std::span<const Verb* const> verbs);

 private:
  GroupLayout layout_;
  std::shared_ptr<Communicator> outer_;
  CommonBuffers& common_;
};

}  // namespace lockstep
