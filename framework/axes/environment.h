#pragma once

#include <chrono>
#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <ostream>
#include <source_location>
#include <string>
#include <tuple>
#include <vector>

#include "framework/axes/axis_names.h"
#include "framework/base/scoped_value.h"
#include "framework/base/text.h"
#include "framework/groups/local_replicas.h"
#include "framework/groups/replica_group.h"

namespace lockstep {

/// A partition of an axis: every index once. Inside a group, order is the order written. Empty: the
/// whole axis is one group.
using AxisIndexGroups = std::vector<std::vector<std::int64_t>>;

/// "[[0, 2], [3, 1]]"
[[nodiscard]] std::string text_of(const AxisIndexGroups& groups);

/// The name of a map's axis if the map is given none, unless an outer map has that name.
inline constexpr const char* kDefaultAxisName = "i";

struct NamedAxis {
  std::string name;
  std::int64_t size;
  /// Whether the map was given no name while the default one was taken: then no collective can name
  /// this axis.
  bool nameless = false;
};

/// The replicas of one map or job, as one of them sees them. They are counted row-major over the
/// axes that it binds.
struct AxisLevel {
  std::vector<NamedAxis> axes;
  std::int64_t rank;           ///< this replica's
  std::uint64_t map_call;      ///< which call it is of those that the same replica makes
  std::vector<int> workers{};  ///< that of each rank; empty: all in this one
  /// In a map of a job's replicas: which of them has called for each rank.
  std::vector<std::int64_t> callers{};

  [[nodiscard]] std::int64_t size() const;
  /// The distance in rank between neighbours along axis `axis`.
  [[nodiscard]] std::int64_t stride(std::size_t axis) const;
  /// This replica's index along axis `axis`.
  [[nodiscard]] std::int64_t index(std::size_t axis) const;
};

/// A call of a collective as messages describe it.
struct AxisCall {
  const char* operation;
  AxisNames axes;
  std::source_location where;

  /// The call that messages name instead of this one: see CalledFrom.
  [[nodiscard]] const AxisCall& shown() const noexcept;
  /// "psum over 'data' (model.cpp:41)"
  [[nodiscard]] std::string text() const;
  /// Throws the ValueError "text(): parts", the `parts` as str() puts them together, unless
  /// `holds`.
  template <typename... Parts>
  void require(bool holds, const Parts&... parts) const {
    lockstep::require(holds, *this, ": ", parts...);
  }
  friend std::ostream& operator<<(std::ostream& out, const AxisCall& call) {
    return out << call.text();
  }
};

/// While it lives, messages about this thread's collectives name the function that the user called,
/// and its line, in place of the collective's own.
class CalledFrom : ScopedValue<const AxisCall*> {
 public:
  explicit CalledFrom(const AxisCall& call) noexcept;
};

/// "model.cpp:41"
[[nodiscard]] std::string text_of(const std::source_location& where);

/// Why this thread's collectives, maps and launches are refused, as the innermost CallsRefused
/// says; nullptr: they are not.
inline constinit thread_local const char* refusal_here = nullptr;

/// While it lives, this thread's collectives, maps and launches are Errors that end with `reason`:
/// for what must not wait for others.
class CallsRefused : ScopedValue<const char*> {
 public:
  explicit CallsRefused(const char* reason) noexcept : ScopedValue(refusal_here, reason) {}
};

/// Throws Error where they are refused; `call` names what was called.
[[noreturn]] inline void throw_refused(const std::string& call) {
  throw Error(call + ": " + refusal_here);
}

/// Whether the groups of axis_index_groups may differ in size.
enum class GroupSizes { equal, any };

/// Where one replica is: the maps around it, outermost first, with their named axes, and the groups
/// that it has used. Used by the replica's thread, which it outlives.
class Environment {
 public:
  /// Takes a seat on the board of `local`. `identity` is that of the replica whose backward this
  /// one runs; a new one otherwise.
  Environment(std::shared_ptr<groups::LocalReplicas> local, std::vector<AxisLevel> levels,
              std::shared_ptr<comm::Cancellation> cancellation, std::chrono::milliseconds timeout,
              std::shared_ptr<const int> identity = nullptr);
  Environment(const Environment&) = delete;
  Environment& operator=(const Environment&) = delete;

  [[nodiscard]] const std::shared_ptr<groups::LocalReplicas>& local_replicas() const noexcept {
    return local_;
  }
  [[nodiscard]] const std::vector<AxisLevel>& levels() const noexcept { return levels_; }
  [[nodiscard]] groups::Member& member() noexcept { return member_; }
  /// The same object in a forward and in its backward.
  [[nodiscard]] const std::shared_ptr<const int>& identity() const noexcept { return identity_; }
  /// The call of the next map that this replica makes, never 0. Those that span the job are counted
  /// apart, so that a member may run maps of its own between them; not where the collectives of
  /// such maps name the job's axis, too: all members call those alike.
  [[nodiscard]] std::uint64_t next_map_call(bool spans_job) noexcept {
    return spans_job ? 2 * ++spanning_maps_ : 2 * ++own_maps_ + 1;
  }

  /// "'data', 'model'", outermost first.
  [[nodiscard]] std::string bound_names() const;
  [[nodiscard]] bool binds(const std::string& name) const;

  /// See replicas_of.
  [[nodiscard]] groups::ReplicaGroup& group(const AxisCall& call, const AxisIndexGroups& groups,
                                            GroupSizes sizes);
  /// A call of a collective on a group.
  struct CallNumber {
    std::uint64_t number;  ///< among this replica's calls on the group, from 1
    std::uint64_t key;     ///< of group and number: equal for the group's replicas
  };
  /// Counts a call on a group that group() gave.
  [[nodiscard]] CallNumber next_call(const groups::ReplicaGroup& replicas);
  /// This replica's row-major index over the call's axes, and how many there are.
  struct AxisIndex {
    std::int64_t index;
    std::int64_t size;
  };
  [[nodiscard]] AxisIndex place(const AxisCall& call) const;

 private:
  struct BoundAxis {
    std::size_t level;
    std::size_t axis;
    [[nodiscard]] const NamedAxis& of(const std::vector<AxisLevel>& levels) const {
      return levels[level].axes[axis];
    }
  };
  [[nodiscard]] std::vector<BoundAxis> resolve(const AxisCall& call) const;
  [[nodiscard]] std::uint64_t key_of(const std::vector<BoundAxis>& axes,
                                     const std::vector<std::int64_t>& group) const;
  [[nodiscard]] std::vector<watch::GroupMember> members_of(const std::vector<BoundAxis>& axes,
                                                           const std::vector<std::int64_t>& group,
                                                           std::int64_t size) const;

  std::shared_ptr<groups::LocalReplicas> local_;
  std::vector<AxisLevel> levels_;
  groups::Member member_;
  std::shared_ptr<const int> identity_;
  std::uint64_t own_maps_ = 0;
  std::uint64_t spanning_maps_ = 0;
  using GroupKey = std::tuple<std::vector<std::string>, AxisIndexGroups, GroupSizes>;
  struct KnownGroup {
    std::unique_ptr<groups::ReplicaGroup> replicas;
    std::uint64_t key = 0;
    std::uint64_t calls = 0;
  };
  std::map<GroupKey, KnownGroup> groups_;
};

/// That of the replica which this thread runs, or nullptr outside of maps and jobs.
[[nodiscard]] Environment* current_environment() noexcept;

/// Replaces this thread's environment while it lives: a map runs its function under one.
class EnvironmentScope : ScopedValue<Environment*> {
 public:
  explicit EnvironmentScope(Environment* environment) noexcept;
};

/// The replicas that a call works on: those of its axes, row-major in the order in which it names
/// them, or of the group that this replica is in. Throws NameError, with the names that are bound,
/// if a name is not bound or is the default name of several maps. Throws ValueError if no name is
/// given, a name stands twice, or the groups do not cover every index exactly once in sizes that
/// the operation allows. The result lives as long as the environment.
[[nodiscard]] groups::ReplicaGroup& replicas_of(const AxisCall& call, const AxisIndexGroups& groups,
                                                GroupSizes sizes);

/// This replica's index over the axes that `call` names, and their size; throws as replicas_of.
[[nodiscard]] Environment::AxisIndex place_of(const AxisCall& call);

}  // namespace lockstep
