#pragma once

#include <chrono>
#include <cstddef>
#include <cstdint>
#include <initializer_list>
#include <source_location>
#include <string>
#include <utility>
#include <vector>

#include "framework/replicas/map.h"
#include "framework/replicas/mesh.h"

namespace lockstep {

/// One spec for all results, or one for each element of a returned tuple.
class OutSpecs {
 public:
  OutSpecs(PartitionSpec spec) : specs_{std::move(spec)}, for_all_(true) {}  // NOLINT
  OutSpecs(std::vector<PartitionSpec> specs) : specs_(std::move(specs)) {}   // NOLINT
  OutSpecs(std::initializer_list<PartitionSpec> specs) : specs_(specs) {}

  /// Throws ValueError if there is not one for each element.
  [[nodiscard]] const PartitionSpec& of(std::size_t element, std::size_t elements) const;
  [[nodiscard]] const std::vector<PartitionSpec>& all() const noexcept { return specs_; }

 private:
  std::vector<PartitionSpec> specs_;
  bool for_all_ = false;
};

struct ShardMapOptions {
  /// Compare results along the axes that their spec does not name, and refuse those that differ.
  bool check_replicated = true;
  /// Math threads of each replica; 0: the host's cores / its replicas, at least 1.
  std::int64_t threads_per_replica = 0;
  /// How long a replica waits for the others in a collective.
  std::chrono::milliseconds timeout{60'000};
};

namespace map_detail {

/// The replicas of a mesh that this process runs: a box of indices.
class LocalMesh {
 public:
  /// ValueErrors if the mesh does not divide among the job's members, or not into boxes.
  explicit LocalMesh(const Mesh& mesh);

  [[nodiscard]] std::int64_t replicas() const noexcept { return replicas_; }
  [[nodiscard]] const Mesh& mesh() const noexcept { return mesh_; }
  /// ValueError, starting with `what`, if the spec names an axis twice or one that the mesh has
  /// not.
  void check(const PartitionSpec& spec, const std::string& what) const;
  /// The leaf as blocks of equal size, one for each of this process' index combinations.
  [[nodiscard]] MapInput cut(const Tensor& leaf, const PartitionSpec& spec,
                             const std::string& what) const;
  /// What cut() would make the replicas' blocks of.
  [[nodiscard]] Tensor join(const std::vector<Tensor>& blocks, const PartitionSpec& spec,
                            const std::string& what) const;
  /// The mesh's axes that the spec does not name.
  [[nodiscard]] std::vector<std::string> unnamed(const PartitionSpec& spec) const;
  /// Whether the first replica along each of the axes is one of this process'.
  [[nodiscard]] bool has_first(const std::vector<std::string>& axes) const;

 private:
  [[nodiscard]] std::int64_t extent(const std::string& axis) const;
  [[nodiscard]] std::int64_t blocks(const std::vector<std::string>& axes) const;
  [[nodiscard]] std::int64_t block_of(std::int64_t replica,
                                      const std::vector<std::string>& axes) const;

  Mesh mesh_;
  std::int64_t replicas_;
  std::vector<std::int64_t> begins_;  // of the box, by axis
  std::vector<std::int64_t> extents_;
};

/// All arguments' leaves, cut as their specs say.
[[nodiscard]] std::vector<MapInput> cut(const LocalMesh& local,
                                        const std::vector<Argument>& arguments,
                                        const std::vector<PartitionSpec>& in_specs,
                                        const OutSpecs& out_specs);

/// Throws ValueError on every replica if the leaves of result `element` differ along the axes, in
/// number, shape, dtype or value; `where` is the map's call. An undefined one is a ValueError, too.
void check_replicated(const std::vector<Tensor>& leaves, const std::vector<std::string>& axes,
                      std::size_t element, std::source_location where);

/// What a result is made of: the blocks of all replicas here, joined as its spec says.
[[nodiscard]] std::vector<Tensor> joined_result(const LocalMesh& local, const Element& result,
                                                const PartitionSpec& spec);

}  // namespace map_detail

/// A function that runs `f` once for every replica of the mesh, in threads, with the mesh's axes
/// bound, on its block of every argument, and joins the blocks that they return. As jax.shard_map.
///
///   auto product = shard_map(f, Mesh({{"data", 4}, {"model", 2}}),
///                            {P("data"), P(none, "model")}, P("data", "model"));
///
/// There is one spec in in_specs for each argument, for all leaves of a tree; lengths must divide.
/// Arguments that are no trees are static, their spec is P(). A result of which the spec does not
/// name every axis must be the same along those axes; it is taken from the first replica. In a
/// launched job each member passes and gets the blocks of its own replicas, which must be a box of
/// the mesh. Nesting, derivatives, memory that results share with arguments, and errors are pmap's:
/// a result that replicas share along axes which its spec does not name counts once in gradients,
/// in the member that has the first replica along those axes; and what `f` captures must be an
/// argument with the spec P() where members of a job need its gradient.
template <typename F>
[[nodiscard]] auto shard_map(F f, Mesh mesh, std::vector<PartitionSpec> in_specs,
                             OutSpecs out_specs, ShardMapOptions options = {},
                             std::source_location where = std::source_location::current()) {
  return [f = std::move(f), mesh = std::move(mesh), in_specs = std::move(in_specs),
          out_specs = std::move(out_specs), options = std::move(options),
          where]<typename... Args>(const Args&... args) {
    const map_detail::LocalMesh local(mesh);
    const std::vector<map_detail::Argument> arguments{map_detail::describe(args)...};
    const auto inputs = map_detail::cut(local, arguments, in_specs, out_specs);
    TeamOptions team{"shard_map",      {},
                     local.replicas(),
                     /*lanes=*/false,  options.threads_per_replica,
                     options.timeout,  where};
    for (const auto& [name, size] : mesh.axes()) team.axes.push_back({name, size});
    const auto check = [&](const TeamPlace&, std::vector<Tensor>& leaves, std::size_t element,
                           std::size_t count) {
      if (!options.check_replicated) return;
      map_detail::check_replicated(leaves, local.unnamed(out_specs.of(element, count)), element,
                                   where);
    };
    const auto joined = [&](const map_detail::Element& result) {
      return map_detail::joined_result(local, result, out_specs.of(result.index, result.count));
    };
    return map_detail::run(team, inputs, f, check, joined, args...);
  };
}

}  // namespace lockstep
