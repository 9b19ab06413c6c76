#pragma once

#include <cstdint>
#include <map>
#include <memory>
#include <source_location>
#include <string>
#include <vector>

#include "framework/axes/axis_names.h"
#include "framework/comm/communicator.h"

namespace lockstep {

/// A partition of an axis: every index once. Inside a group, order is the order written. Empty: the
/// whole axis is one group.
using AxisIndexGroups = std::vector<std::vector<std::int64_t>>;

/// The replicas of one axis as one of them sees them, with the parts of it that were asked for.
/// Used by one thread at a time.
class AxisGroup {
 public:
  explicit AxisGroup(std::shared_ptr<Communicator> whole);

  [[nodiscard]] Communicator& whole() const noexcept { return *whole_; }
  /// The part of `members`, this replica among them; made once and kept.
  [[nodiscard]] Communicator& part(const std::vector<std::int64_t>& members);

 private:
  std::shared_ptr<Communicator> whole_;
  std::map<std::vector<std::int64_t>, std::shared_ptr<Communicator>> parts_;
};

/// A named axis that is bound: which of its replicas this is, and who the others are.
struct Axis {
  std::string name;
  std::int64_t index;
  std::int64_t size;
  std::shared_ptr<AxisGroup> group;
};

/// The axes that are bound where this thread is, outermost first.
[[nodiscard]] const std::vector<Axis>& bound_axes() noexcept;

/// Replaces this thread's bound axes while it lives: a map runs its function under one.
class AxisScope {
 public:
  explicit AxisScope(std::vector<Axis> axes);
  ~AxisScope();
  AxisScope(const AxisScope&) = delete;
  AxisScope& operator=(const AxisScope&) = delete;

 private:
  std::vector<Axis> outer_;
};

/// A call of a collective as messages describe it.
struct AxisCall {
  const char* operation;
  AxisNames axes;
  std::source_location where;

  /// "psum over 'data' (model.cpp:41)"
  [[nodiscard]] std::string text() const;
};

/// Whether the groups of axis_index_groups may differ in size.
enum class GroupSizes { equal, any };

/// The replicas that a call works on: those of its axes, or of the group that this replica is in.
/// Throws NameError if a name is not bound (saying which are), ValueError if no name is given, one
/// stands twice, or the groups do not cover every index of the axis exactly once in sizes that the
/// operation allows. The axis' group lives as long as `call`'s scope.
[[nodiscard]] Communicator& replicas_of(const AxisCall& call, const AxisIndexGroups& groups,
                                        GroupSizes sizes);

/// The axis that `call` names; throws as replicas_of.
[[nodiscard]] const Axis& axis_of(const AxisCall& call);

}  // namespace lockstep
