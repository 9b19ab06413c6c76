#include "framework/replicas/map.h"

#include <numeric>

#include <ATen/ops/stack.h>
#include <c10/core/GradMode.h>

#include "framework/base/errors.h"
#include "framework/base/text.h"
#include "framework/collectives/pbroadcast.h"
#include "framework/replicas/shared_result.h"

namespace lockstep {

std::optional<std::int64_t> OutAxes::of(const char* map, std::size_t element,
                                        std::size_t elements) const {
  if (for_all_) return axes_[0];
  if (axes_.size() != elements) {
    throw ValueError(str(map, ": out_axes has ", axes_.size(), " entries for ", elements,
                         elements == 1 ? " result" : " results"));
  }
  return axes_[element];
}

namespace map_detail {
namespace {

std::string title_of(const AxisMap& options) {
  return lockstep::str(options.map, " over '", options.axis_name, "'");
}

// Where leaf `leaf` of argument `argument` is cut, counted from the front.
std::int64_t checked_axis(const std::string& map, const Tensor& leaf, std::size_t argument,
                          std::size_t index, std::int64_t axis) {
  const std::string where = lockstep::str(map, ": leaf ", index, " of argument ", argument);
  check_leaf(leaf, where);
  if (axis < -leaf.dim() || axis >= leaf.dim()) {
    throw ValueError(lockstep::str(where, " has shape ", leaf.sizes(),
                                   ", in_axes cuts it along dimension ", axis));
  }
  return axis < 0 ? axis + leaf.dim() : axis;
}

}  // namespace

void check_leaf(const Tensor& leaf, const std::string& what) {
  if (!leaf.defined()) throw ValueError(what + " is an undefined tensor");
  if (leaf.is_complex() && leaf.requires_grad() && c10::GradMode::is_enabled()) {
    throw ValueError(lockstep::str(what, " is ", at::toString(leaf.scalar_type()),
                                   " and requires a gradient; maps are differentiated in real "
                                   "numbers: use view_as_real"));
  }
}

std::int64_t plan(const AxisMap& options, std::vector<Argument>& arguments) {
  const std::string name = title_of(options);
  if (options.axis_name.empty())
    throw ValueError(str(options.map, ": axis_name must not be empty"));
  if (!options.in_axes.empty() && options.in_axes.size() != arguments.size()) {
    throw ValueError(str(name, ": in_axes has ", options.in_axes.size(), " entries, the call ",
                         arguments.size(), " arguments"));
  }
  std::int64_t replicas = options.axis_size;
  std::string decided_by = str("axis_size is ", replicas);
  if (replicas < 0)
    throw ValueError(str(name, ": axis_size is ", replicas, "; it must not be negative"));
  for (std::size_t a = 0; a < arguments.size(); ++a) {
    Argument& argument = arguments[a];
    if (!options.in_axes.empty()) {
      argument.axis = options.in_axes[a];
    } else if (argument.is_tree) {
      argument.axis = 0;
    }
    if (!argument.axis) {
      for (std::size_t l = 0; l < argument.leaves.size(); ++l) {
        check_leaf(argument.leaves[l], str(name, ": leaf ", l, " of argument ", a));
      }
      continue;
    }
    if (!argument.is_tree) {
      throw ValueError(str(name, ": argument ", a,
                           " is no tree of tensors: its entry in in_axes must be std::nullopt"));
    }
    for (std::size_t l = 0; l < argument.leaves.size(); ++l) {
      const Tensor& leaf = argument.leaves[l];
      const auto length = leaf.size(checked_axis(name, leaf, a, l, *argument.axis));
      const std::string here = str("leaf ", l, " of argument ", a, " has length ", length,
                                   " along dimension ", *argument.axis);
      if (replicas == 0) {
        replicas = length;
        decided_by = here;
      }
      if (length != replicas) {
        throw ValueError(str(name, ": ", decided_by, ", but ", here, "; they must agree"));
      }
      if (length == 0)
        throw ValueError(str(name, ": ", here, "; a map needs at least one replica"));
    }
  }
  if (replicas == 0) {
    throw ValueError(str(name, ": no argument is mapped, so that axis_size must be given"));
  }
  return replicas;
}

std::vector<MapInput> cut(const AxisMap& options, const std::vector<Argument>& arguments,
                          std::int64_t replicas) {
  std::vector<std::size_t> own(static_cast<std::size_t>(replicas));
  std::iota(own.begin(), own.end(), 0U);
  const std::vector<std::size_t> first(own.size(), 0);
  std::vector<MapInput> inputs;
  for (const Argument& argument : arguments) {
    for (const Tensor& leaf : argument.leaves) {
      if (argument.axis) {
        inputs.push_back({leaf.unbind(*argument.axis), own, {}});
      } else {
        inputs.push_back({{leaf}, first, {options.axis_name}});
      }
    }
  }
  return inputs;
}

std::vector<Tensor> combine(const AxisMap& options, const Element& element) {
  const auto& replicas = element.leaves;
  const auto axis = options.out_axes.of(options.map, element.index, element.count);
  const std::string name = title_of(options);
  if (!axis) {
    std::vector<Tensor> shared = replicas[0];
    for (std::size_t l = 0; l < shared.size(); ++l) {
      if (!shared[l].defined()) {
        throw ValueError(str(name, ": leaf ", l, " of replica 0's result is undefined"));
      }
      if (element.first > 0) shared[l] = counted_elsewhere(shared[l]);
    }
    return shared;
  }
  std::vector<Tensor> combined;
  for (std::size_t l = 0; l < replicas[0].size(); ++l) {
    std::vector<Tensor> parts;
    for (std::size_t r = 0; r < replicas.size(); ++r) {
      const Tensor& part = replicas[r][l];
      const Tensor& first = replicas[0][l];
      if (!part.defined()) {
        throw ValueError(
            lockstep::str(name, ": leaf ", l, " of replica ", r, "'s result is undefined"));
      }
      if (part.sizes() != first.sizes() || part.scalar_type() != first.scalar_type()) {
        throw ValueError(lockstep::str(name, ": leaf ", l, " of the result is ", first.sizes(), " ",
                                       at::toString(first.scalar_type()), " on replica 0 and ",
                                       part.sizes(), " ", at::toString(part.scalar_type()),
                                       " on replica ", r));
      }
      parts.push_back(part);
    }
    const std::int64_t dimensions = parts[0].dim() + 1;
    if (*axis < -dimensions || *axis >= dimensions) {
      throw ValueError(lockstep::str(name, ": out_axes ", *axis,
                                     " is out of range for results of shape ", parts[0].sizes()));
    }
    combined.push_back(at::stack(parts, *axis));
  }
  return combined;
}

void take_first_replicas(const AxisMap& options, std::vector<Tensor>& leaves) {
  leaves = collectives_detail::pbroadcast_leaves(leaves, options.axis_name, 0, options.where);
}

}  // namespace map_detail
}  // namespace lockstep
