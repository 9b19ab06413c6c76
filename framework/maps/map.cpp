#include "framework/maps/map.h"

#include <algorithm>
#include <numeric>

#include <ATen/ops/stack.h>
#include <c10/core/GradMode.h>

#include "framework/base/random.h"
#include "framework/collectives/message.h"
#include "framework/collectives/pbroadcast.h"
#include "framework/maps/own_graph.h"

namespace lockstep::map_detail {

void check_leaf(const Tensor& leaf, const std::string& what) {
  require(leaf.defined(), what, " is an undefined tensor");
  require(!leaf.is_complex() || !leaf.requires_grad() || !c10::GradMode::is_enabled(), what, " is ",
          at::toString(leaf.scalar_type()),
          " and requires a gradient; maps are differentiated in real numbers: use view_as_real");
}

std::string form_of(const Tensor& leaf) {
  return lockstep::str(leaf.sizes(), " ", at::toString(leaf.scalar_type()));
}

void check_same_form(const Tensor& first, const Tensor& leaf, const std::string& what,
                     std::size_t r) {
  if (leaf.sizes() == first.sizes() && leaf.scalar_type() == first.scalar_type()) return;
  throw ValueError(
      str(what, " is ", form_of(first), " on replica 0 and ", form_of(leaf), " on replica ", r));
}

NamedAxis named_axis(const std::optional<std::string>& name, std::int64_t size, bool lanes) {
  if (name) return {*name, size};
  const Environment* const outer = current_environment();
  NamedAxis axis{kDefaultAxisName, size};
  // A map that spans a job binds only its own axis.
  if (outer == nullptr || (maps::in_job() && !lanes)) return axis;
  for (int count = 2; outer->binds(axis.name); ++count) {
    axis = {lockstep::str("(unnamed ", count, ")"), size, /*nameless=*/true};
  }
  return axis;
}

std::vector<maps::MapInput> cut(
    maps::MapCall& map_call,
    const std::vector<ArgumentLeaf<std::optional<std::int64_t>>>& arguments) {
  NamedAxis& axis = map_call.axes[0];
  require(!axis.name.empty(), "axis_name must not be empty");
  std::string decided_by = str("axis_size is ", axis.size);
  require(axis.size >= 0, decided_by, "; it must not be negative");
  std::vector<maps::MapInput> inputs;
  for (const auto& [leaf, entry, name] : arguments) {
    check_leaf(leaf, name);
    if (!entry) {
      inputs.push_back({{leaf}, {}, {axis.name}});
      continue;
    }
    require(*entry >= -leaf.dim() && *entry < leaf.dim(), name, " has shape ", leaf.sizes(),
            ", in_axes cuts it along dimension ", *entry,
            leaf.dim() == 0 ? "; the entry none gives it whole to every replica" : "");
    const std::int64_t length = leaf.size(*entry);
    const std::string here = str(name, " has length ", length, " along dimension ", *entry);
    if (axis.size == 0) {
      axis.size = length;
      decided_by = here;
    }
    require(length == axis.size, decided_by, ", but ", here,
            "; they must agree. The entry none in in_axes gives one whole to every replica");
    require(length > 0, here, "; a map needs at least one replica");
    inputs.push_back({leaf.unbind(*entry), {}, {}});
  }
  require(axis.size > 0, "no argument is mapped, so that axis_size must be given");
  map_call.replicas = axis.size;
  for (maps::MapInput& input : inputs) {
    input.part_of.resize(static_cast<std::size_t>(axis.size));
    if (input.shared_over.empty()) std::iota(input.part_of.begin(), input.part_of.end(), 0U);
  }
  return inputs;
}

Tensor combine(const ResultLeaf& result, const std::optional<std::int64_t>& axis) {
  const Leaves& parts = result.of_replicas;
  const Tensor& first = parts[0];
  const std::string name = str("leaf ", result.index, " of the result");
  for (std::size_t r = 0; r < (axis ? parts.size() : 1); ++r) {
    require(parts[r].defined(), "leaf ", result.index, " of replica ", r, "'s result is undefined");
    check_same_form(first, parts[r], name, r);
  }
  if (!axis) return result.first > 0 ? maps::counted_elsewhere(first) : first;
  const std::int64_t dimensions = first.dim() + 1;
  require(*axis >= -dimensions && *axis < dimensions, "out_axes ", *axis,
          " is out of range for results of shape ", first.sizes());
  return at::stack(parts, *axis);
}

void take_first_replicas(const maps::MapCall& map_call, Leaves& leaves,
                         const std::vector<std::optional<std::int64_t>>& axes) {
  std::vector<std::size_t> shared;
  Leaves own;
  for (std::size_t l = 0; l < leaves.size(); ++l) {
    if (axes[l]) continue;
    shared.push_back(l);
    own.push_back(leaves[l]);
  }
  if (shared.empty()) return;
  const AxisCall call{"pbroadcast", maps::names_of(map_call), map_call.where};
  const Leaves firsts = collectives::pbroadcast_leaves(call, own, 0);
  for (std::size_t i = 0; i < shared.size(); ++i) leaves[shared[i]] = firsts[i];
}

Comparison::Comparison(std::array<std::uint64_t, 3> all_digests, const std::string& whole)
    : digests(all_digests) {
  std::copy_n(whole.begin(), std::min(whole.size(), text.size() - 1), text.begin());
}

std::vector<Comparison> compared(const maps::MapCall& map_call, const AxisNames& axes,
                                 const std::string& step, const Comparison& own) {
  const AxisCall call{map_call.map, axes, map_call.where};
  groups::ReplicaGroup& group = replicas_of(call, {}, GroupSizes::any);
  std::vector<Comparison> all;
  collectives::communicate(call, [&] {
    group.begin(calls::CallRecord{Key(0).fold(step).bits(), maps::text_of(map_call) + ", " + step});
    all = group.all_gather(own);
    group.end();
  });
  return all;
}

void check_same_values(const maps::MapCall& map_call, const std::vector<std::string>& texts) {
  // The digest also compares the part of the texts that does not fit.
  const std::string whole = join(texts);
  const auto all = compared(map_call, maps::names_of(map_call),
                            "comparing the static values that its replicas return",
                            Comparison({Key(0).fold(whole).bits()}, whole));
  for (std::size_t r = 1; r < all.size(); ++r) {
    if (all[r].digests == all[0].digests) continue;
    throw ValueError(str(maps::text_of(map_call), ": the results of replicas 0 and ", r,
                         " differ in their static values, ", all[0].text.data(), " and ",
                         all[r].text.data(),
                         "; return as tensors what is not the same on all replicas"));
  }
}

}  // namespace lockstep::map_detail
