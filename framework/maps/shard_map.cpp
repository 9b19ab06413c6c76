#include "framework/maps/shard_map.h"

#include <algorithm>
#include <map>
#include <optional>
#include <ranges>
#include <set>

#include <ATen/ops/cat.h>
#include <c10/core/GradMode.h>

#include "framework/base/errors.h"
#include "framework/base/random.h"
#include "framework/base/text.h"
#include "framework/collectives/message.h"
#include "framework/collectives/varying.h"
#include "framework/maps/own_graph.h"
#include "framework/storage/checksum.h"
#include "framework/tree/error_place.h"

namespace lockstep::map_detail {
namespace {

std::string text_of(const Mesh& mesh) {
  const auto text = [](const auto& axis) { return str("'", axis.first, "': ", axis.second); };
  return "{" + join(mapped(mesh.axes(), text)) + "}";
}

std::string text_of(const PartitionSpec& spec) {
  const auto text_of_entry = [](const auto& axes) {
    return axes.empty() ? "none" : AxisNames(axes).text();
  };
  return "P(" + join(mapped(spec, text_of_entry)) + ")";
}

void check_rank(const Tensor& leaf, const PartitionSpec& spec, const std::string& what) {
  check_leaf(leaf, what);
  if (leaf.dim() < std::ssize(spec)) {
    throw ValueError(lockstep::str(what, " has shape ", leaf.sizes(), ", but its spec ",
                                   text_of(spec), " has ", counted(std::ssize(spec), "dimension")));
  }
}

// Joins blocks in row-major order; dimension d has counts[d] of them.
Tensor joined(Leaves blocks, const std::vector<std::int64_t>& counts) {
  for (std::size_t d = counts.size(); d-- > 0;) {
    const auto count = static_cast<std::size_t>(counts[d]);
    if (count == 1) continue;
    Leaves rows;
    for (std::size_t i = 0; i < blocks.size(); i += count) {
      const auto begin = blocks.begin() + static_cast<std::ptrdiff_t>(i);
      rows.push_back(at::cat(Leaves(begin, begin + counts[d]), static_cast<std::int64_t>(d)));
    }
    blocks = std::move(rows);
  }
  return blocks[0];
}

// Returns the first index along the axes whose digest is not that of index 0, or 0.
std::size_t differing(const std::vector<Comparison>& all, std::size_t digest) {
  const auto other = std::ranges::find_if(
      all, [&](const Comparison& one) { return one.digests[digest] != all[0].digests[digest]; });
  return other == all.end() ? 0 : static_cast<std::size_t>(other - all.begin());
}

// Throws ValueError on every replica if the leaves with these indices differ along `axes`.
void check_alike(const maps::MapCall& map_call, const ResultLeaves& result,
                 const std::vector<std::size_t>& indices, const AxisNames& axes) {
  const std::string whole = str("result ", result.element);
  const auto name_of = [&](std::size_t index) {
    return result.leaves.size() > 1 ? str(whole, ", leaf ", index, ",") : whole;
  };
  for (const std::size_t index : indices) check_leaf(result.leaves[index], name_of(index));
  const c10::AutoGradMode no_grad(false);
  std::vector<Comparison> own;  // form and value of each leaf
  Key forms(0);
  Key values(0);
  for (const std::size_t index : indices) {
    const Tensor message = collectives::as_message(result.leaves[index].detach());
    const std::string form = form_of(message);
    own.push_back(Comparison(
        {Key(0).fold(form).bits(), storage::checksum_of(collectives::bytes_of(message))}, form));
    forms = forms.fold(own.back().digests[0]);
    values = values.fold(own.back().digests[1]);
  }
  const std::string step = "comparing its results along " + axes.text();
  const std::string along = " differs along " + axes.text() + ": ";
  const std::string rule =
      str("its out spec does not name ", axes.names().size() > 1 ? "these axes" : "this axis");
  // All replicas see the same digests, and go on together to find out where the difference is.
  const auto all =
      compared(map_call, axes, step, Comparison({indices.size(), forms.bits(), values.bits()}));
  if (const std::size_t r = differing(all, 0); r > 0) {
    throw ValueError(str(whole, along, "it has ",
                         counted(static_cast<std::int64_t>(all[0].digests[0]), "leaf", "leaves"),
                         " at index 0 and ", all[r].digests[0], " at index ", r, "; ", rule));
  }
  const bool in_form = differing(all, 1) > 0;
  if (!in_form && differing(all, 2) == 0) return;
  for (std::size_t l = 0; l < indices.size(); ++l) {
    const std::string name = name_of(indices[l]);
    const auto leaf = compared(map_call, axes, step, own[l]);
    const std::size_t r = differing(leaf, in_form ? 0 : 1);
    if (r == 0) continue;
    if (in_form) {
      throw ValueError(str(name, along, "it is ", leaf[0].text.data(), " at index 0 and ",
                           leaf[r].text.data(), " at index ", r, "; ", rule));
    }
    throw ValueError(str(name, along, "index ", r, " has another value than index 0, and ", rule,
                         ". Is a psum missing?"));
  }
}

}  // namespace

MeshBox::MeshBox(const Mesh& mesh) : mesh_(mesh), replicas_(mesh.size()) {
  std::int64_t first = 0;
  if (maps::in_job()) {
    const AxisLevel& job = current_environment()->levels()[0];
    if (mesh.size() % job.size() != 0) {
      throw ValueError(lockstep::str("the mesh ", text_of(mesh), " has ", mesh.size(),
                                     " replicas, which do not divide among the ", job.size(),
                                     " members of the job"));
    }
    replicas_ = mesh.size() / job.size();
    first = job.rank * replicas_;
  }
  // The box has the ranges of indices that replicas first to first + replicas - 1 take.
  std::int64_t stride = 1;
  std::int64_t volume = 1;
  for (const auto& [name, size] : mesh.axes() | std::views::reverse) {
    std::set<std::int64_t> indices;
    for (std::int64_t rank = first; rank < first + replicas_; ++rank) {
      indices.insert(rank / stride % size);
    }
    // Replicas of a box are counted row-major in it, too.
    axes_.insert(axes_.begin(), {name, *indices.begin(), std::ssize(indices), volume});
    stride *= size;
    volume *= axes_.front().extent;
  }
  if (volume != replicas_) {
    throw ValueError(lockstep::str("the ", replicas_,
                                   " replicas of a member of the job are no box of the mesh ",
                                   text_of(mesh)));
  }
}

const MeshBox::Axis* MeshBox::find(const std::string& name) const {
  const auto axis = std::ranges::find(axes_, name, &Axis::name);
  return axis == axes_.end() ? nullptr : &*axis;
}

void MeshBox::check(const PrefixTree<PartitionSpec>& specs, const std::string& what) const {
  specs.for_each([&](const PartitionSpec& spec) {
    std::set<std::string> seen;
    const auto refuse = [&](const std::string& axis, const std::string& why) {
      throw ValueError(str(what, ": the spec ", text_of(spec), " names axis '", axis, "'", why));
    };
    for (const auto& axes : spec) {
      for (const std::string& axis : axes) {
        if (!find(axis)) refuse(axis, ", which the mesh " + text_of(mesh_) + " has not");
        if (!seen.insert(axis).second) refuse(axis, " twice");
      }
    }
  });
}

std::int64_t MeshBox::blocks(const std::vector<std::string>& axes) const {
  std::int64_t count = 1;
  for (const std::string& axis : axes) count *= find(axis)->extent;
  return count;
}

std::int64_t MeshBox::block_of(std::int64_t replica, const std::vector<std::string>& axes) const {
  std::int64_t block = 0;
  for (const std::string& name : axes) {
    const Axis& axis = *find(name);
    block = block * axis.extent + replica / axis.below % axis.extent;
  }
  return block;
}

std::vector<std::string> MeshBox::unnamed(const PartitionSpec& spec) const {
  std::vector<std::string> rest;
  for (const Axis& axis : axes_) {
    const bool named = std::ranges::any_of(
        spec, [&](const auto& axes) { return std::ranges::find(axes, axis.name) != axes.end(); });
    if (!named) rest.push_back(axis.name);
  }
  return rest;
}

maps::MapInput MeshBox::cut(const ArgumentLeaf<PartitionSpec>& argument) const {
  const auto& [leaf, spec, what] = argument;
  check_rank(leaf, spec, what);
  maps::MapInput input{
      {leaf}, std::vector<std::size_t>(static_cast<std::size_t>(replicas_), 0), unnamed(spec)};
  for (std::size_t d = 0; d < spec.size(); ++d) {
    const std::int64_t count = blocks(spec[d]);
    const auto dimension = static_cast<std::int64_t>(d);
    if (leaf.size(dimension) % count != 0) {
      throw ValueError(lockstep::str(what, " has shape ", leaf.sizes(), "; its spec ",
                                     text_of(spec), " cuts dimension ", d, " into ", count,
                                     " blocks, which must divide ", leaf.size(dimension)));
    }
    if (count == 1) continue;
    Leaves smaller;
    for (const Tensor& part : input.parts) {
      for (Tensor& piece : part.chunk(count, dimension)) smaller.push_back(std::move(piece));
    }
    input.parts = std::move(smaller);
    for (std::size_t r = 0; r < input.part_of.size(); ++r) {
      input.part_of[r] = input.part_of[r] * static_cast<std::size_t>(count) +
                         static_cast<std::size_t>(block_of(static_cast<std::int64_t>(r), spec[d]));
    }
  }
  return input;
}

Tensor MeshBox::join(const ResultLeaf& result, const PartitionSpec& spec) const {
  const std::string what = str("result ", result.element);
  std::vector<std::int64_t> counts;
  std::int64_t total = 1;
  for (const auto& axes : spec) {
    counts.push_back(blocks(axes));
    total *= counts.back();
  }
  Leaves ordered(static_cast<std::size_t>(total));
  for (std::size_t r = result.of_replicas.size(); r-- > 0;) {
    const Tensor& block = result.of_replicas[r];
    check_rank(block, spec, lockstep::str(what, " of replica ", r));
    check_same_form(result.of_replicas[0], block, what, r);
    std::int64_t place = 0;
    for (std::size_t d = 0; d < spec.size(); ++d) {
      place = place * counts[d] + block_of(static_cast<std::int64_t>(r), spec[d]);
    }
    ordered[static_cast<std::size_t>(place)] = block;  // the first replica's block comes last
  }
  const Tensor leaf = joined(std::move(ordered), counts);
  // The leaf counts where the first replica along the axes that its spec does not name is.
  const bool has_first =
      std::ranges::all_of(unnamed(spec), [&](const auto& axis) { return find(axis)->begin == 0; });
  return has_first ? leaf : maps::counted_elsewhere(leaf);
}

Leaves check_vma(const MeshBox& local, const maps::MapCall& map_call, const ResultLeaves& result) {
  const tree::Variance& variance = *tree::current_variance();
  Leaves leaves;
  for (std::size_t l = 0; l < result.leaves.size(); ++l) {
    const std::string name =
        str("shard_map (", place_of(map_call.where), "): result ", result.element,
            result.leaves.size() > 1 ? str(", leaf ", l, ",") : "");
    check_leaf(result.leaves[l], name);
    const tree::AxisSet named = variance.all() & ~variance.set_of(local.unnamed(result.specs[l]));
    if (const tree::AxisSet more = variance.of(result.leaves[l]) & ~named; more != 0) {
      throw ValueError(str(name, " varies over ", AxisNames(variance.names_of(more)).text(),
                           ", which its out spec does not name. Is a psum missing?"));
    }
    leaves.push_back(collectives::varying_over(named, {result.leaves[l]})[0]);
  }
  return leaves;
}

void check_replicated(const MeshBox& local, const maps::MapCall& map_call,
                      const PrefixTree<PartitionSpec>& specs, const ResultLeaves& result) {
  std::optional<tree::Untracked> untracked;
  if (tree::current_variance() != nullptr) untracked.emplace();
  // Axes without leaves count, too: other replicas may have some.
  std::map<std::vector<std::string>, std::vector<std::size_t>> leaves_by_axes;
  specs.for_each([&](const PartitionSpec& spec) { leaves_by_axes[local.unnamed(spec)]; });
  for (std::size_t l = 0; l < result.specs.size(); ++l) {
    leaves_by_axes[local.unnamed(result.specs[l])].push_back(l);
  }
  with_title(map_call, [&] {
    for (const auto& [axes, indices] : leaves_by_axes) {
      if (!axes.empty()) check_alike(map_call, result, indices, axes);
    }
  });
}

}  // namespace lockstep::map_detail
