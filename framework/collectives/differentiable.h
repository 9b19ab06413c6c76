#pragma once

#include <functional>
#include <string>

#include "framework/collectives/message.h"

namespace lockstep {

/// How gradients go back through a collective: from those of its results to those of its operands,
/// by collectives in turn, so that derivatives of derivatives work.
using BackwardRule = std::function<Leaves(const Leaves& result_gradients)>;

/// Runs `forward` on the leaves as one node of autograd's graph whose backward is `rule`. The
/// backward must run where the forward ran, in the map whose axis `call` names; elsewhere it is a
/// NameError. Results that nothing depends on count as zeros. Without a leaf that requires a
/// gradient this is just forward(leaves).
[[nodiscard]] Leaves differentiable(const AxisCall& call, const Leaves& leaves,
                                    const std::function<Leaves(const Leaves&)>& forward,
                                    const std::function<BackwardRule(const Leaves& results)>& rule);

}  // namespace lockstep
