#include "framework/axes/environment.h"

#include <algorithm>
#include <string_view>
#include <utility>

#include "framework/base/errors.h"
#include "framework/base/random.h"
#include "framework/tree/error_place.h"

namespace lockstep {
namespace {

[[noreturn]] void throw_unbound(const AxisCall& call, const std::string& name,
                                const std::string& bound) {
  throw NameError(str(call, ": axis '", name, "' is not bound here; ",
                      bound.empty() ? "no axis is: collectives run inside a function that pmap, "
                                      "vmap, shard_map or launch runs"
                                    : "bound: " + bound));
}

Environment& environment_of(const AxisCall& call) {
  call.require(!call.axes.names().empty(), "at least one axis name is needed");
  if (environment_here == nullptr) throw_unbound(call, call.axes.names()[0], "");
  return *environment_here;
}

void check_groups(const AxisCall& call, const AxisIndexGroups& groups, std::int64_t size,
                  GroupSizes sizes) {
  const auto check = [&](bool holds, const auto&... rule) {
    if (!holds) throw ValueError(str(call, ": axis_index_groups ", text_of(groups), " ", rule...));
  };
  std::vector<bool> covered(static_cast<std::size_t>(size), false);
  for (const auto& group : groups) {
    check(!group.empty(), "has an empty group");
    check(sizes == GroupSizes::any || group.size() == groups[0].size(), "has groups of ",
          groups[0].size(), " and of ", group.size(), "; this operation needs groups of one size");
    for (const std::int64_t index : group) {
      check(index >= 0 && index < size, "names index ", index, "; the axis has 0 to ", size - 1);
      const auto covers = covered.begin() + index;
      check(!*covers, "names index ", index, " twice");
      *covers = true;
    }
  }
  const auto missing = std::find(covered.begin(), covered.end(), false) - covered.begin();
  check(missing == size, "must cover every index of the axis exactly once; the axis has ", size,
        ", index ", missing, " is missing");
}

// Returns the group of `index`, and its place there; without groups an empty one: the whole axis.
std::pair<std::vector<std::int64_t>, std::int64_t> own_group(const AxisIndexGroups& groups,
                                                             std::int64_t index) {
  for (const auto& group : groups) {
    const auto found = std::ranges::find(group, index);
    if (found != group.end()) return {group, found - group.begin()};
  }
  return {{}, index};
}

// Returns the replica at `ranks` of the levels, outermost first; its ancestors' maps run it.
calls::GroupMember member_at(const std::vector<AxisLevel>& levels,
                             const std::vector<std::int64_t>& ranks, int own_worker) {
  const auto outermost = static_cast<std::size_t>(ranks[0]);
  const auto& workers = levels[0].workers;
  const int worker = workers.empty() ? own_worker : workers[outermost];
  const Key root = Key(0).fold("replica");
  calls::GroupMember member{.worker = worker};
  const auto enter = [&](const Key& key) {
    std::shift_right(member.ancestors.begin(), member.ancestors.end(), 1);
    member.ancestors[0] = std::exchange(member.id, key.bits() | 1);
  };
  if (const auto& callers = levels[0].callers; !callers.empty()) {
    const auto caller = static_cast<std::uint64_t>(callers[outermost]);
    enter(root.fold(0).fold(caller));
  }
  Key id = root;
  for (std::size_t l = 0; l < levels.size(); ++l) {
    id = id.fold(levels[l].map_call).fold(ranks[l]);
    enter(id);
  }
  return member;
}

std::string name_of(const std::vector<AxisLevel>& levels) {
  std::vector<std::int64_t> indices;
  for (const AxisLevel& level : levels) {
    for (std::size_t axis = 0; axis < level.axes.size(); ++axis) {
      indices.push_back(level.index(axis));
    }
  }
  return indices.size() == 1 ? str(indices[0]) : str("(", join(indices), ")");
}

struct BoundAxis {
  std::size_t level;
  std::size_t axis;
};

std::vector<BoundAxis> resolve(const Environment& here, const AxisCall& call) {
  const std::vector<AxisLevel>& levels = here.levels();
  const auto& names = call.axes.names();
  std::vector<BoundAxis> axes;
  for (auto name = names.begin(); name != names.end(); ++name) {
    call.require(std::find(names.begin(), name, *name) == name, "axis '", *name, "' stands twice");
    const std::size_t before = axes.size();
    for (std::size_t l = 0; l < levels.size(); ++l) {
      for (std::size_t a = 0; a < levels[l].axes.size(); ++a) {
        if (levels[l].axes[a].name == *name) axes.push_back({l, a});
      }
    }
    if (axes.size() == before) {
      const bool spans_job = !levels[0].callers.empty();
      throw_unbound(call, *name,
                    here.bound_names() + (spans_job ? "; a map in a job spans the job's replicas, "
                                                      "in place of the job's own axis"
                                                    : ""));
    }
    const bool has_nameless = std::ranges::any_of(levels, [](const AxisLevel& level) {
      return std::ranges::any_of(level.axes, &NamedAxis::nameless);
    });
    if (*name == kDefaultAxisName && has_nameless) {
      throw NameError(str(call.text(), ": axis '", *name,
                          "' may be that of a map without a name or of one around it (bound: ",
                          here.bound_names(), "); give the one without a name an axis_name"));
    }
  }
  return axes;
}

// Returns a key that is equal for the members of a group, and for no others.
std::uint64_t key_of(const std::vector<AxisLevel>& levels, const std::vector<BoundAxis>& axes,
                     const std::vector<std::int64_t>& group) {
  Key key = Key(0).fold("group");
  for (const BoundAxis& bound : axes) key = key.fold(levels[bound.level].axes[bound.axis].name);
  for (std::size_t l = 0; l < levels.size(); ++l) {
    key = key.fold(levels[l].map_call);
    for (std::size_t a = 0; a < levels[l].axes.size(); ++a) {
      const bool named = std::any_of(axes.begin(), axes.end(), [&](const BoundAxis& bound) {
        return bound.level == l && bound.axis == a;
      });
      key = key.fold(levels[l].axes[a].size)
                .fold(named ? 0U : 1 + static_cast<std::uint64_t>(levels[l].index(a)));
    }
  }
  for (const std::int64_t index : group) key = key.fold(index);
  return key.bits();
}

std::vector<calls::GroupMember> members_of(const std::vector<AxisLevel>& levels, int own_worker,
                                           const std::vector<BoundAxis>& axes,
                                           const std::vector<std::int64_t>& group,
                                           std::int64_t size) {
  std::vector<calls::GroupMember> members;
  const auto count = group.empty() ? size : static_cast<std::int64_t>(group.size());
  for (std::int64_t place = 0; place < count; ++place) {
    std::int64_t rest = group.empty() ? place : group[static_cast<std::size_t>(place)];
    auto ranks = mapped(levels, &AxisLevel::rank);
    for (auto bound = axes.rbegin(); bound != axes.rend(); ++bound) {
      const AxisLevel& level = levels[bound->level];
      const std::int64_t length = level.axes[bound->axis].size;
      ranks[bound->level] += (rest % length - level.index(bound->axis)) * level.stride(bound->axis);
      rest /= length;
    }
    members.push_back(member_at(levels, ranks, own_worker));
  }
  return members;
}

}  // namespace

std::string text_of(const AxisIndexGroups& groups) {
  const auto text_of_one = [](const auto& group) { return str("[", join(group), "]"); };
  return str("[", join(mapped(groups, text_of_one)), "]");
}

std::string AxisCall::text() const {
  return str(shown().operation, " over ", shown().axes.text(), " (", place_of(shown().where), ")");
}

const AxisCall& AxisCall::shown() const noexcept {
  return shown_call != nullptr ? *shown_call : *this;
}

std::int64_t AxisLevel::stride(std::size_t axis) const {
  std::int64_t below = 1;
  for (std::size_t inner = axis + 1; inner < axes.size(); ++inner) below *= axes[inner].size;
  return below;
}

Environment::Environment(std::shared_ptr<groups::LocalReplicas> local,
                         std::vector<AxisLevel> levels,
                         std::shared_ptr<comm::Cancellation> cancellation,
                         std::chrono::milliseconds timeout, std::shared_ptr<const int> identity)
    : local_(std::move(local)),
      levels_(std::move(levels)),
      identity_(identity ? std::move(identity) : std::make_shared<const int>(0)) {
  const calls::GroupMember self =
      member_at(levels_, mapped(levels_, &AxisLevel::rank), local_->worker());
  member_.slot = local_->call_table().take_slot(local_->worker(), self.id, self.ancestors[0],
                                                name_of(levels_));
  member_.cancellation = std::move(cancellation);
  member_.timeout = timeout;
}

std::string Environment::bound_names() const {
  std::vector<std::string> names;
  for (const AxisLevel& level : levels_) {
    for (const NamedAxis& axis : level.axes) names.push_back("'" + axis.name + "'");
  }
  return join(names);
}

bool Environment::binds(const std::string& name) const {
  return std::ranges::any_of(levels_, [&](const AxisLevel& level) {
    return std::ranges::find(level.axes, name, &NamedAxis::name) != level.axes.end();
  });
}

Environment::AxisIndex Environment::axis_index(const AxisCall& call) const {
  AxisIndex place{0, 1};
  for (const BoundAxis& bound : resolve(*this, call)) {
    const AxisLevel& level = levels_[bound.level];
    const std::int64_t size = level.axes[bound.axis].size;
    place.index = place.index * size + level.index(bound.axis);
    place.size *= size;
  }
  return place;
}

groups::ReplicaGroup& Environment::group(const AxisCall& call, const AxisIndexGroups& groups,
                                         GroupSizes sizes) {
  const auto found = groups_.find(std::tie(call.axes.names(), groups, sizes));
  if (found != groups_.end() && found->second.replicas) return *found->second.replicas;
  KnownGroup& known = groups_[{call.axes.names(), groups, sizes}];
  const auto axes = resolve(*this, call);
  const AxisIndex whole = axis_index(call);
  if (!groups.empty()) check_groups(call, groups, whole.size, sizes);
  const auto [group, index] = own_group(groups, whole.index);
  known.key = key_of(levels_, axes, group);
  auto local = local_->group(known.key, [&, &members = group] {
    return members_of(levels_, local_->worker(), axes, members, whole.size);
  });
  known.replicas =
      std::make_unique<groups::ReplicaGroup>(std::move(local), member_, static_cast<int>(index));
  return *known.replicas;
}

Environment::CallNumber Environment::next_call(const groups::ReplicaGroup& replicas) {
  const auto entry = std::ranges::find_if(
      groups_, [&](const auto& other) { return other.second.replicas.get() == &replicas; });
  KnownGroup& known = entry->second;
  ++known.calls;
  // Calls that need equal sizes are counted apart from others of the same group.
  const auto sizes = static_cast<std::uint64_t>(std::get<GroupSizes>(entry->first));
  return {known.calls, Key(known.key).fold(known.calls).fold(sizes).bits()};
}

groups::ReplicaGroup& replicas_of(const AxisCall& call, const AxisIndexGroups& groups,
                                  GroupSizes sizes) {
  if (refusal_here != nullptr) throw_refused(call.text());
  return environment_of(call).group(call, groups, sizes);
}

Environment::AxisIndex axis_index_of(const AxisCall& call) {
  return environment_of(call).axis_index(call);
}

}  // namespace lockstep
