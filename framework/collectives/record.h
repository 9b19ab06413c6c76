#pragma once

#include <cstdint>
#include <string>

#include "framework/axes/environment.h"
#include "framework/collectives/message.h"
#include "framework/watch/board.h"

namespace lockstep {

/// What the other replicas compare and print of a call: see differentiable().
[[nodiscard]] CallRecord record_of(const AxisCall& call, const Leaves& leaves,
                                   const std::string& detail, bool differentiated);

/// ", groups [[0, 1], [2, 3]]", or "" without groups.
[[nodiscard]] std::string group_text(const AxisIndexGroups& groups);

/// A call whose backward may run.
struct ForwardCall {
  AxisCall call;
  /// Equal for the replicas of this call, and for those of no other.
  std::uint64_t id;
  /// "psum over 'data' at model.cpp:44 (call 3)": its third on those axes and groups.
  std::string text;
};

/// The call that `record` describes, for its backward.
[[nodiscard]] ForwardCall forward_call(const AxisCall& call, const CallRecord& record,
                                       const Environment::CallNumber& number);

/// While this lives, collectives that this thread calls are recorded as the backward of `forward`.
/// They meet only collectives of that call's backward.
class BackwardOf : ScopedValue<const ForwardCall*> {
 public:
  explicit BackwardOf(const ForwardCall& forward) noexcept;
};

}  // namespace lockstep
