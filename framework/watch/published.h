#pragma once

#include <cstdint>
#include <optional>
#include <string_view>

#include "framework/watch/board.h"
#include "framework/watch/board_memory.h"

namespace lockstep {

/// A call number that stands for a member's end: `key` is then the member's id, and the verdict is
/// what it ended with.
inline constexpr std::uint64_t kOwnEnd = ~std::uint64_t{0};
/// With this begins what such a member's seat says.
inline constexpr std::string_view kMismatch = "CollectiveMismatch: ";

/// Puts a verdict on call `number` of the group `key` where all members of the job find it. The
/// first on a call counts; the board keeps the last PublicWords::kKept of all calls.
void publish(PublicWords& words, std::uint64_t key, std::uint64_t number,
             const Board::Verdict& verdict) noexcept;

/// The verdict on a call, if one was published.
[[nodiscard]] std::optional<Board::Verdict> published(const PublicWords& words, std::uint64_t key,
                                                      std::uint64_t number);

}  // namespace lockstep
