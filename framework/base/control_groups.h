#pragma once

#include <cstddef>
#include <cstdint>
#include <filesystem>
#include <functional>
#include <optional>
#include <string>

namespace lockstep {

/// Calls `look` with the folder of each control group in which `controller` ("memory", "cpu") may
/// limit this process, and with the version of control groups, 1 or 2, whose files are there. A
/// limit holds for all that is below it: the groups above come, too. Read from proc/self/cgroup and
/// sys/fs/cgroup below `root`.
void visit_control_groups(
    const std::filesystem::path& root, const std::string& controller,
    const std::function<void(const std::filesystem::path& group, int version)>& look);

/// The first word of a file if it is a whole number: none where the file says "max", or nothing.
[[nodiscard]] std::optional<std::int64_t> number_in(const std::filesystem::path& file);

/// The number behind `key` in a file of lines "key number" or "key: number kB", in bytes for the
/// latter.
[[nodiscard]] std::optional<std::size_t> field_of(const std::filesystem::path& file,
                                                  const std::string& key);

}  // namespace lockstep
