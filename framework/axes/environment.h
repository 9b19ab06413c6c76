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
#include "framework/base/non_copyable.h"
#include "framework/base/scoped_value.h"
#include "framework/base/text.h"
#include "framework/groups/local_replicas.h"
#include "framework/groups/replica_group.h"

namespace lockstep {

/// A partition of an axis: each index in one group, in the order written. Empty: one group of all.
using AxisIndexGroups = std::vector<std::vector<std::int64_t>>;

/// Returns the groups as "[[0, 2], [3, 1]]".
[[nodiscard]] std::string text_of(const AxisIndexGroups& groups);

/// The name of a map's axis if none is given, unless an outer map has this name already.
inline constexpr const char* kDefaultAxisName = "i";

struct NamedAxis {
  std::string name;
  std::int64_t size;
  /// True for an unnamed map in one with the default name: no collective can name this axis.
  bool nameless = false;
};

/// The replicas of one map or job, as one of them sees them, counted row-major over its axes.
struct AxisLevel {
  std::vector<NamedAxis> axes;
  std::int64_t rank;           ///< this replica's
  std::uint64_t map_call;      ///< the call's number among the same replica's
  std::vector<int> workers{};  ///< the worker of each rank; empty: all in this one
  /// In a map that spans a job: for each rank, the job's replica that called the map.
  std::vector<std::int64_t> callers{};

  [[nodiscard]] std::int64_t size() const { return axes.empty() ? 1 : axes[0].size * stride(0); }
  /// Returns the distance in rank between neighbours along axis `axis`.
  [[nodiscard]] std::int64_t stride(std::size_t axis) const;
  [[nodiscard]] std::int64_t index(std::size_t axis) const {
    return rank / stride(axis) % axes[axis].size;
  }
};

/// A call of a collective as messages describe it.
struct AxisCall {
  const char* operation;
  AxisNames axes;
  std::source_location where;

  /// Returns the call of another operation of the same caller: its derivative.
  [[nodiscard]] AxisCall as(const char* other) const { return {other, axes, where}; }
  /// Returns the call that messages name in place of this one: see CalledFrom.
  [[nodiscard]] const AxisCall& shown() const noexcept;
  /// Returns "psum over 'data' (model.cpp:41)".
  [[nodiscard]] std::string text() const;
  /// Throws the ValueError "text(): parts", with the `parts` put together by str(), unless `holds`.
  template <typename... Parts>
  void require(bool holds, const Parts&... parts) const {
    lockstep::require(holds, *this, ": ", parts...);
  }
  friend std::ostream& operator<<(std::ostream& out, const AxisCall& call) {
    return out << call.text();
  }
};

/// The call of this thread's innermost CalledFrom, or nullptr.
inline constinit thread_local const AxisCall* shown_call = nullptr;

/// While this lives, messages about this thread's collectives name the user's call instead of them.
class CalledFrom : ScopedValue<const AxisCall*> {
 public:
  explicit CalledFrom(const AxisCall& call) noexcept : ScopedValue(shown_call, &call) {}
};

/// The reason of this thread's innermost CallsRefused; nullptr where nothing is refused.
inline constinit thread_local const char* refusal_here = nullptr;

/// While this lives, collectives, maps and launches of this thread throw Errors that end with
/// `reason`. For code that must not wait for others.
class CallsRefused : ScopedValue<const char*> {
 public:
  explicit CallsRefused(const char* reason) noexcept : ScopedValue(refusal_here, reason) {}
};

/// Throws the Error for a refused call; `call` names the function.
[[noreturn]] inline void throw_refused(const std::string& call) {
  throw Error(call + ": " + refusal_here);
}

/// The sizes that the groups of axis_index_groups may have: `equal` ones, or `any`.
enum class GroupSizes { equal, any };

/// The environment of one replica: the maps around it, outermost first, with their named axes, and
/// the groups that it has used. Used by the replica's thread, which ends before the object.
class Environment : private NonCopyable {
 public:
  /// Takes a slot in the call table of `local`. A backward has the `identity` of its forward's
  /// replica.
  Environment(std::shared_ptr<groups::LocalReplicas> local, std::vector<AxisLevel> levels,
              std::shared_ptr<comm::Cancellation> cancellation, std::chrono::milliseconds timeout,
              std::shared_ptr<const int> identity = nullptr);

  [[nodiscard]] const std::shared_ptr<groups::LocalReplicas>& local_replicas() const noexcept {
    return local_;
  }
  [[nodiscard]] const std::vector<AxisLevel>& levels() const noexcept { return levels_; }
  [[nodiscard]] groups::Member& member() noexcept { return member_; }
  /// Returns an object that is the same in a forward and in its backward.
  [[nodiscard]] const std::shared_ptr<const int>& identity() const noexcept { return identity_; }
  /// Returns the number of the next map that this replica calls, never 0. Members of a job meet in
  /// a map only if all give it the same number. Maps that span the job are counted apart: a member
  /// may call others in between, unless their collectives name the job's axis.
  [[nodiscard]] std::uint64_t next_map_call(bool spans_job) noexcept {
    return spans_job ? 2 * ++spanning_maps_ : 2 * ++own_maps_ + 1;
  }

  /// Returns "'data', 'model'", outermost first.
  [[nodiscard]] std::string bound_names() const;
  [[nodiscard]] bool binds(const std::string& name) const;

  /// Returns the group of a call: see replicas_of.
  [[nodiscard]] groups::ReplicaGroup& group(const AxisCall& call, const AxisIndexGroups& groups,
                                            GroupSizes sizes);
  /// A call of a collective on a group.
  struct CallNumber {
    std::uint64_t number;  ///< among this replica's calls on the group, from 1
    std::uint64_t key;     ///< of group and number: equal for the group's replicas
  };
  /// Counts a call on a group that group() returned.
  [[nodiscard]] CallNumber next_call(const groups::ReplicaGroup& replicas);
  /// This replica's row-major index over the call's axes, and the number of indices.
  struct AxisIndex {
    std::int64_t index;
    std::int64_t size;
  };
  [[nodiscard]] AxisIndex axis_index(const AxisCall& call) const;

 private:
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
  std::map<GroupKey, KnownGroup, std::less<>> groups_;
};

/// The Environment of the replica that this thread runs, or nullptr outside of maps and jobs.
inline constinit thread_local Environment* environment_here = nullptr;
[[nodiscard]] inline Environment* current_environment() noexcept {
  return environment_here;
}
/// Returns the identity() of this thread's Environment, or nullptr.
[[nodiscard]] inline std::shared_ptr<const int> current_identity() noexcept {
  return environment_here != nullptr ? environment_here->identity() : nullptr;
}

/// While this lives, this thread has the given environment: a map runs its function in it.
class EnvironmentScope : ScopedValue<Environment*> {
 public:
  explicit EnvironmentScope(Environment* environment) noexcept
      : ScopedValue(environment_here, environment) {}
};

/// Returns the replicas that a call works on: all replicas of its axes, row-major in the order in
/// which the call names them, or only the group of this replica. Throws NameError, with the bound
/// names, if a name is not bound or is the default name of several maps. Throws ValueError if no
/// name is given, a name is repeated, or the groups do not cover every index exactly once in sizes
/// that the operation allows. The result lives as long as the environment.
[[nodiscard]] groups::ReplicaGroup& replicas_of(const AxisCall& call, const AxisIndexGroups& groups,
                                                GroupSizes sizes);

/// Returns this replica's index over the axes of `call`, and their size; throws as replicas_of.
[[nodiscard]] Environment::AxisIndex axis_index_of(const AxisCall& call);

}  // namespace lockstep
