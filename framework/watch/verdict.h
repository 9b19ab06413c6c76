#pragma once

#include <cstdint>
#include <optional>
#include <string>

#include "framework/watch/board.h"
#include "framework/watch/board_memory.h"

namespace lockstep {

/// Board::examine() and Board::absentees() for the member on seat `index` of a worker.
[[nodiscard]] std::optional<Board::Verdict> find_verdict(const BoardMemory& memory, int worker,
                                                         std::uint32_t index, bool settled_only);
[[nodiscard]] std::string describe_absentees(const BoardMemory& memory, int worker,
                                             std::uint32_t index);

}  // namespace lockstep
