#pragma once

#include <cstddef>
#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

namespace lockstep::engines {

/// The most entries that a list may stand for: as many as Slurm itself takes in one range.
inline constexpr std::size_t kMostNodes = 65'536;

/// Returns the hosts of a list as Slurm writes it, in its order: "rack[0-1]n[01-02],x7" is
/// rack0n01, rack0n02, rack1n01, rack1n02 and x7. The time for this is bounded. Throws ValueError,
/// naming list, column and rule, for other texts, and for more than kMostNodes hosts.
[[nodiscard]] std::vector<std::string> node_names(std::string_view list);

/// Returns numbers of neighbouring hosts, such as their tasks, as Slurm writes them: "2(x3),1" is
/// 2, 2, 2 and 1; each is from 1 to 1,000,000. Throws ValueError under the same conditions.
[[nodiscard]] std::vector<std::int64_t> numbers_of_nodes(std::string_view list);

}  // namespace lockstep::engines
