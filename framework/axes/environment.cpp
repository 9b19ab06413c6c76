#include "framework/axes/environment.h"

#include <algorithm>
#include <string_view>
#include <utility>

#include "framework/base/errors.h"
#include "framework/base/text.h"

namespace lockstep {
namespace {

thread_local std::vector<Axis> current_axes;

const Axis& find_bound(const AxisCall& call, const std::string& name) {
  // Inner axes hide nothing: a name is bound once.
  for (const Axis& axis : current_axes) {
    if (axis.name == name) return axis;
  }
  std::vector<std::string> bound;
  for (const Axis& axis : current_axes) bound.push_back("'" + axis.name + "'");
  throw NameError(str(call.text(), ": axis '", name, "' is not bound here; ",
                      bound.empty() ? "no axis is: collectives run inside a function that pmap or "
                                      "launch runs"
                                    : "bound: " + join(bound)));
}

std::string text_of(const AxisIndexGroups& groups) {
  std::vector<std::string> parts;
  for (const auto& group : groups) parts.push_back("[" + join(group) + "]");
  return "[" + join(parts) + "]";
}

void check_groups(const AxisCall& call, const AxisIndexGroups& groups, std::int64_t size,
                  GroupSizes sizes) {
  const auto refuse = [&](const std::string& rule) {
    throw ValueError(str(call.text(), ": axis_index_groups ", text_of(groups), " ", rule));
  };
  std::vector<bool> covered(static_cast<std::size_t>(size), false);
  std::int64_t count = 0;
  for (const auto& group : groups) {
    if (group.empty()) refuse("has an empty group");
    if (sizes == GroupSizes::equal && group.size() != groups[0].size()) {
      refuse(str("has groups of ", groups[0].size(), " and of ", group.size(),
                 "; this operation needs groups of one size"));
    }
    for (const std::int64_t index : group) {
      if (index < 0 || index >= size) {
        refuse(str("names index ", index, "; the axis has 0 to ", size - 1));
      }
      if (covered[static_cast<std::size_t>(index)]) refuse(str("names index ", index, " twice"));
      covered[static_cast<std::size_t>(index)] = true;
      ++count;
    }
  }
  if (count != size) {
    const auto missing = std::find(covered.begin(), covered.end(), false) - covered.begin();
    refuse(str("must cover every index of the axis exactly once; the axis has ", size, ", index ",
               missing, " is missing"));
  }
}

}  // namespace

AxisGroup::AxisGroup(std::shared_ptr<Communicator> whole) : whole_(std::move(whole)) {}

Communicator& AxisGroup::part(const std::vector<std::int64_t>& members) {
  auto& part = parts_[members];
  if (!part) part = whole_->subgroup(std::vector<int>(members.begin(), members.end()));
  return *part;
}

const std::vector<Axis>& bound_axes() noexcept {
  return current_axes;
}

AxisScope::AxisScope(std::vector<Axis> axes)
    : outer_(std::exchange(current_axes, std::move(axes))) {}

AxisScope::~AxisScope() {
  current_axes = std::move(outer_);
}

std::string AxisCall::text() const {
  std::string_view file = where.file_name();
  file.remove_prefix(file.find_last_of('/') + 1);
  return str(operation, " over ", axes.text(), " (", file, ":", where.line(), ")");
}

const Axis& axis_of(const AxisCall& call) {
  const auto& names = call.axes.names();
  if (names.empty()) throw ValueError(str(call.text(), ": at least one axis name is needed"));
  for (std::size_t i = 0; i < names.size(); ++i) {
    if (std::find(names.begin(), names.begin() + static_cast<std::ptrdiff_t>(i), names[i]) !=
        names.begin() + static_cast<std::ptrdiff_t>(i)) {
      throw ValueError(str(call.text(), ": axis '", names[i], "' stands twice"));
    }
    (void)find_bound(call, names[i]);
  }
  // A scope binds one axis, so that several names never all pass the checks above.
  return find_bound(call, names[0]);
}

Communicator& replicas_of(const AxisCall& call, const AxisIndexGroups& groups, GroupSizes sizes) {
  const Axis& axis = axis_of(call);
  if (groups.empty()) return axis.group->whole();
  check_groups(call, groups, axis.size, sizes);
  for (const auto& group : groups) {
    if (std::find(group.begin(), group.end(), axis.index) != group.end()) {
      return axis.group->part(group);
    }
  }
  throw ValueError(str(call.text(), ": index ", axis.index, " is in no group"));
}

}  // namespace lockstep
