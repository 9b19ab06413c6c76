#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <type_traits>
#include <utility>

#include <c10/util/intrusive_ptr.h>
#include <torch/csrc/autograd/function.h>

#include "framework/collectives/message.h"
#include "framework/collectives/varying.h"

namespace lockstep::collectives {

/// Returns ", groups [[0, 1], [2, 3]]", or "" without groups.
[[nodiscard]] std::string group_text(const AxisIndexGroups& groups);

/// A call whose backward may run.
struct ForwardCall {
  AxisCall call;
  /// The same on all replicas of this call; no other call has it.
  std::uint64_t id;
  /// "psum over 'data' at model.cpp:44 (call 3)": its third on those axes and groups.
  std::string text;
};

/// While this lives, this thread's collectives are the backward of `forward`, and meet no others.
class BackwardOf : ScopedValue<const ForwardCall*> {
 public:
  explicit BackwardOf(const ForwardCall& forward) noexcept;
};

/// Makes gradients of operands from those of results, by collectives: higher derivatives work so.
using BackwardRule = std::function<Leaves(const Leaves& result_gradients)>;

/// Announces and runs a call without a derivative as differentiable() does. The call writes
/// leaves[0]. If the leaves have no elements, all replicas meet first. The recorder has the call
/// under the id `recorded`, if it is a part of that call.
void announced(const AxisCall& call, groups::ReplicaGroup& replicas, const Leaves& leaves,
               const std::string& detail, const std::function<void()>& run,
               std::optional<std::uint64_t> recorded = std::nullopt);

/// Announces the call to `replicas`, which compare it with theirs: operation, axes, dtypes, shapes
/// and paths of the leaves, `detail` (options, for people), and whether it is differentiated. A
/// CommError from `forward` gains the call's description. Runs `forward` on the leaves as one node
/// of autograd's graph whose backward is `rule`. The backward must run in the replica of its
/// forward; elsewhere it throws NameError. Results that nothing depends on have gradients of zeros.
/// Without a leaf that requires a gradient this is just forward(leaves). `axes` says over which
/// axes the results vary: only a shard_map with check_vma tracks this. A call with
/// ResultAxes::gained does not communicate, and is not announced.
[[nodiscard]] Leaves differentiable(const AxisCall& call, groups::ReplicaGroup& replicas,
                                    const Leaves& leaves, const std::string& detail,
                                    const std::function<Leaves(const Leaves&)>& forward,
                                    const std::function<BackwardRule(const Leaves& results)>& rule,
                                    ResultAxes axes = ResultAxes::as_operand);

/// Returns a `rule` for differentiable(): the backward calls another of these functions as
/// `operation` with the gradients and `arguments`, which are copied only if it may run.
template <typename Function, typename... Arguments>
auto backward_calls(const AxisCall& call, const char* operation, Function function,
                    const Arguments&... arguments) {
  return [&call, operation, function, &arguments...](const Leaves&) -> BackwardRule {
    return [=](const Leaves& gradients) {
      return function(call.as(operation), gradients, arguments...);
    };
  };
}

/// Makes a node of autograd's graph with the owner that this version of LibTorch uses: a shared_ptr
/// in older versions, an intrusive_ptr in newer ones.
template <typename Node, typename... Args>
auto make_node(Args&&... args) {
  using Owner = decltype(torch::autograd::Edge::function);
  if constexpr (std::is_same_v<Owner, std::shared_ptr<torch::autograd::Node>>) {
    return std::shared_ptr<Node>(new Node(std::forward<Args>(args)...),
                                 [](auto* node) { deleteNode(node); });
  } else {
    return c10::make_intrusive<Node>(std::forward<Args>(args)...);
  }
}

}  // namespace lockstep::collectives
