#pragma once

#include <cstddef>
#include <cstdint>
#include <filesystem>
#include <functional>
#include <optional>
#include <string>

namespace lockstep {

/// Calls `look` with the folder of each control group in which `controller` ("memory", "cpu") may
/// limit this process, and with the version of control groups, 1 or 2, whose files are there. The
/// groups above come, too, since their limits hold for all below. Reads proc/self/cgroup and
/// sys/fs/cgroup below `root`.
void visit_control_groups(
    const std::filesystem::path& root, const std::string& controller,
    const std::function<void(const std::filesystem::path& group, int version)>& look);

/// Returns a file's first word if it is a whole number; nothing for "max" or an empty file.
[[nodiscard]] std::optional<std::int64_t> number_in(const std::filesystem::path& file);

/// Returns the number behind `key` in a file of lines "key number" or "key: number kB", in bytes
/// for the latter.
[[nodiscard]] std::optional<std::size_t> field_of(const std::filesystem::path& file,
                                                  const std::string& key);

}  // namespace lockstep
