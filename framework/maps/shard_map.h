#pragma once

#include <chrono>
#include <cstddef>
#include <cstdint>
#include <source_location>
#include <string>
#include <utility>
#include <vector>

#include "framework/maps/map.h"
#include "framework/maps/mesh.h"

namespace lockstep {

/// One spec for all arguments (static ones have none), or a list with one an argument, which may
/// have specs for parts of a tree (PrefixTree).
using InSpecs = PrefixTree<PartitionSpec>;

/// One spec for all results, or one for each element of a returned tuple or part of another tree.
using OutSpecs = PrefixTree<PartitionSpec>;

struct ShardMapOptions {
  /// Compare results along the axes that their spec does not name, and refuse different ones.
  bool check_replicated = true;
  /// True to follow the axes over which values vary, and to give JAX's gradients: see shard_map.
  bool check_vma = false;
  /// Math threads of each replica; 0: the host's cores / its replicas, at least 1.
  std::int64_t threads_per_replica = 0;
  /// How long a replica waits for the others in a collective.
  std::chrono::milliseconds timeout{60'000};
};

namespace map_detail {

/// The replicas of a mesh that this process runs: a box of indices.
class MeshBox {
 public:
  /// Throws ValueError if the mesh does not divide among the job's members, or not into boxes.
  explicit MeshBox(const Mesh& mesh);

  [[nodiscard]] std::int64_t replicas() const noexcept { return replicas_; }
  /// Throws ValueError, starting with `what`, if a spec names an axis twice or an unknown one.
  void check(const PrefixTree<PartitionSpec>& specs, const std::string& what) const;
  /// Returns the leaf as blocks of equal size, one for each of this process' index combinations.
  [[nodiscard]] maps::MapInput cut(const ArgumentLeaf<PartitionSpec>& argument) const;
  /// Returns the whole that the replicas' blocks make: the inverse of cut().
  [[nodiscard]] Tensor join(const ResultLeaf& result, const PartitionSpec& spec) const;
  /// Returns the mesh's axes that the spec does not name.
  [[nodiscard]] std::vector<std::string> unnamed(const PartitionSpec& spec) const;

 private:
  struct Axis {
    std::string name;
    std::int64_t begin;  // of the box
    std::int64_t extent;
    std::int64_t below;  // the distance in the box between neighbours along it
  };
  [[nodiscard]] const Axis* find(const std::string& name) const;
  [[nodiscard]] std::int64_t blocks(const std::vector<std::string>& axes) const;
  [[nodiscard]] std::int64_t block_of(std::int64_t replica,
                                      const std::vector<std::string>& axes) const;

  Mesh mesh_;
  std::int64_t replicas_;
  std::vector<Axis> axes_;
};

/// The leaves of one result in a replica, each leaf's spec, and the result's index.
struct ResultLeaves {
  const Leaves& leaves;
  const std::vector<PartitionSpec>& specs;
  std::size_t element;
};

/// Throws ValueError on every replica if leaves are undefined or differ, in number, shape, dtype or
/// value, along axes that their specs do not name. `specs` is the result's part of out_specs.
void check_replicated(const MeshBox& local, const maps::MapCall& map_call,
                      const PrefixTree<PartitionSpec>& specs, const ResultLeaves& result);

/// Checks a replica's result with check_vma: throws ValueError if a leaf varies over an axis that
/// its spec does not name. Returns the leaves, now varying over all axes that their specs name.
[[nodiscard]] Leaves check_vma(const MeshBox& local, const maps::MapCall& map_call,
                               const ResultLeaves& result);

}  // namespace map_detail

/// Returns a function that runs `f` once for every replica of the mesh, in threads, with the mesh's
/// axes bound, on the replica's block of every argument, and joins the returned blocks. Follows
/// jax.shard_map.
///
///   auto product = shard_map(f, Mesh({{"data", 4}, {"model", 2}}),
///                            {P("data"), P(none, "model")}, P("data", "model"));
///
/// - **in_specs** has a spec for each argument, for all leaves of a tree, or one for all arguments.
///   Parts of a tree may have specs of their own: see PrefixTree. Lengths must divide. Static
///   arguments are as pmap's, with the spec P().
/// - **out_specs.** A result must be the same along the axes that its spec does not name. It is
///   taken from the first replica along them, and counts once in gradients.
/// - **In a launched job** each member passes and gets the blocks of its own replicas, which must
///   be a box of the mesh. To give members its gradient, a captured tensor must be an argument with
///   the spec P(). A shared result's gradient is that of the member with the first replica along
///   the axes that the result's spec does not name.
/// - **As in pmap** are nesting, derivatives, memory that results share with arguments, and errors.
/// - **Gradients that `f` takes itself** differ from JAX's unless options.check_vma is set. Without
///   it (as JAX's check_vma=False) they are gradients of the sum of all replicas' values, whatever
///   the specs say: a loss that went through psum has N times the gradient that one expects.
/// - **check_vma** gives JAX's default. An argument is one value along the axes that its spec does
///   not name, and so is a psum's result. Where such a value meets one that varies, a pvary stands
///   in the graph: the gradient by shared parameters is the sum over the replicas that use them,
///   with no psum of one's own (the example). Variance follows from specs, collectives and
///   operations, never from values. A result that varies over an axis which its spec does not name
///   is a ValueError. So is any operation that cannot be followed: axis_index (axis_index_tensor
///   can), numbers read from a tensor that varies (item), draws of LibTorch's generators, in-place
///   collectives, trainers (they average themselves), nested maps. Memory that is read or written
///   by pointers is not seen.
///
///   // P() parameters, P("data") batch: JAX's default is the whole batch's gradient.
///   auto step = shard_map([](const Tensor& w, const Tensor& x) {
///     return grad([&](const Tensor& at) { return pmean((at * x).sum(), "data"); })(w);
///   }, Mesh({{"data", 4}}), {P(), P("data")}, P(), {.check_vma = true});
template <typename F>
[[nodiscard]] auto shard_map(F f, Mesh mesh, InSpecs in_specs, OutSpecs out_specs,
                             ShardMapOptions options = {},
                             std::source_location where = std::source_location::current()) {
  return [f = std::move(f), mesh = std::move(mesh), in_specs = std::move(in_specs),
          out_specs = std::move(out_specs), options = std::move(options),
          where]<typename... Args>(const Args&... args) {
    if constexpr (map_detail::check_call<F, Args...>()) {
      maps::MapCall map_call{.map = "shard_map",
                             .threads_per_replica = options.threads_per_replica,
                             .timeout = options.timeout,
                             .where = where,
                             .check_vma = options.check_vma};
      for (const auto& [name, size] : mesh.axes()) map_call.axes.push_back({name, size});
      const auto local =
          map_detail::with_title(map_call, [&] { return map_detail::MeshBox(mesh); });
      map_call.replicas = local.replicas();
      const auto inputs = map_detail::with_title(map_call, [&] {
        if (in_specs.is_left_out()) {
          map_detail::check_count(in_specs, "in_specs", sizeof...(args), "argument");
        }
        local.check(in_specs, "in_specs");
        local.check(out_specs, "out_specs");
        return mapped(map_detail::describe(in_specs, "in_specs", args...),
                      [&](const auto& argument) { return local.cut(argument); });
      });
      const auto check = [&](const maps::ReplicaThread&, Leaves& leaves, const auto& specs,
                             std::size_t index, std::size_t count) {
        if (!options.check_vma && !options.check_replicated) return;
        const auto own = specs();
        if (options.check_vma) {
          leaves = map_detail::check_vma(local, map_call, {leaves, own, index});
        }
        if (!options.check_replicated) return;
        map_detail::check_replicated(
            local, map_call, map_detail::entry_of_result(out_specs, "out_specs", index, count),
            {leaves, own, index});
      };
      const auto joined = [&](const map_detail::ResultLeaf& result, const PartitionSpec& spec) {
        return local.join(result, spec);
      };
      return map_detail::run(map_call, inputs, out_specs, "out_specs", f, check, joined, args...);
    } else {
      return Tensor();  // as axis_map
    }
  };
}

}  // namespace lockstep
