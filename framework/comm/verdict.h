#pragma once

#include <cstdint>
#include <optional>
#include <string>

#include "framework/comm/board.h"
#include "framework/comm/board_memory.h"

namespace lockstep {

/// Board::examine() and Board::absentees() for the member on seat `index` of a host slot.
[[nodiscard]] std::optional<Board::Verdict> find_verdict(const BoardMemory& memory, int host,
                                                         std::uint32_t index, bool settled_only);
[[nodiscard]] std::string describe_absentees(const BoardMemory& memory, int host,
                                             std::uint32_t index);

}  // namespace lockstep
