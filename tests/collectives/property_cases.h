#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <span>
#include <string>
#include <vector>

#include <ATen/core/Tensor.h>

#include "framework/axes/axis_names.h"
#include "framework/axes/environment.h"
#include "framework/base/random.h"
#include "tests/collectives/oracle.h"

namespace lockstep::testing {

using Tensors = std::vector<at::Tensor>;
using Sizes = std::vector<std::int64_t>;

/// Returns a key by LOCKSTEP_SEED of the environment, or by a fixed number. Prints the number.
[[nodiscard]] Key property_key(const std::string& test);

/// Named axes, outermost first. Its replicas are counted row-major over all of them.
struct World {
  std::vector<NamedAxis> axes;

  [[nodiscard]] std::int64_t size() const;
  /// Returns the index of the replica that calls this.
  [[nodiscard]] std::int64_t replica() const;
  [[nodiscard]] std::string text() const;
};

/// Returns one to three axes with at most `most` replicas in all.
[[nodiscard]] World random_world(Draw& draw, std::int64_t most);

/// The map that binds an axis. Neighbours that are `mesh` are one mesh, which a shard_map runs.
enum class Binding { pmap, vmap, mesh };
[[nodiscard]] std::vector<Binding> random_bindings(Draw& draw, const World& world);
[[nodiscard]] std::string bindings_text(const std::vector<Binding>& bindings);
/// Runs `body` in every replica of the world's axes from `first` on; the axes before are bound.
void bind_axes(const World& world, const std::vector<Binding>& bindings, std::size_t first,
               const std::function<void()>& body);

/// A call of an operator, and its oracle: the result of a group's replica at `place`, from the
/// values of the group's replicas in the group's order.
struct Operation {
  std::string text;
  AxisIndexGroups groups = {};
  /// Sizes of the next leaf.
  std::function<Sizes(Draw& draw)> sizes = {};
  std::function<Tensors(const Tensors& leaves, const Key& group, std::size_t place)> call = {};
  std::function<at::Tensor(const Tensors& values, const Key& group, std::size_t place)> oracle = {};
  /// Zeros of different sign count as equal: their order in a maximum is nobody's promise.
  bool by_value = false;
};

/// The axes over which an operator is drawn.
struct OperationAxis {
  AxisNames names;
  std::int64_t replicas;
};

/// Draws an operator's options, and the operator where there are several.
using DrawOperation = Operation (*)(Draw& draw, const OperationAxis& axis);

/// Operators that are drawn alike.
struct OperationKind {
  const char* name;
  std::size_t weight;  ///< the number of ways to call them
  DrawOperation draw;
};
[[nodiscard]] std::span<const OperationKind> operation_kinds();
/// Draws one of all operators.
[[nodiscard]] Operation random_operation(Draw& draw, const OperationAxis& axis);

/// A random call of a random operator over some of a world's axes, in any order, with the inputs of
/// all replicas. Replicas in threads share one.
class PropertyCase {
 public:
  PropertyCase(const Key& key, const World& world, DrawOperation draw_operation = random_operation);

  /// Calls the operator as replica `replica` and throws unless the result is the serial
  /// reference's. Returns a digest of the results' dtypes, shapes and bits.
  [[nodiscard]] std::uint64_t check(std::int64_t replica) const;

 private:
  struct Group {
    std::vector<std::int64_t> members;  // as replicas of the world, in the group's order
    std::size_t place;
  };
  [[nodiscard]] Group group_at(std::int64_t replica) const;

  World world_;
  Key key_;
  std::vector<std::size_t> named_;  // the axes that the call names, in its order
  Operation operation_;
  std::string text_;
  std::vector<Tensors> inputs_;  // [replica][leaf]
  std::vector<Tensors> copies_;
};

/// Returns a digest of dtypes, shapes and bits.
[[nodiscard]] std::uint64_t digest_of(const Tensors& leaves);

/// Returns `count` random cases.
[[nodiscard]] std::vector<PropertyCase> random_property_cases(const Key& key, const World& world,
                                                              std::int64_t count);

}  // namespace lockstep::testing
