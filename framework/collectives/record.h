#pragma once

#include <string>

#include "framework/axes/environment.h"
#include "framework/collectives/message.h"
#include "framework/comm/board.h"

namespace lockstep {

/// What the other replicas compare and print of a call: see differentiable().
[[nodiscard]] CallRecord record_of(const AxisCall& call, const Leaves& leaves,
                                   const std::string& detail, bool differentiated);

/// ", groups [[0, 1], [2, 3]]", or "" without groups.
[[nodiscard]] std::string group_text(const AxisIndexGroups& groups);

/// While it lives the collectives that this thread calls are the backward of `forward`, and are
/// recorded as such.
class BackwardOf {
 public:
  explicit BackwardOf(const AxisCall& forward) noexcept;
  ~BackwardOf();
  BackwardOf(const BackwardOf&) = delete;
  BackwardOf& operator=(const BackwardOf&) = delete;

 private:
  const AxisCall* outer_;
};

}  // namespace lockstep
