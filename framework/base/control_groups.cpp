#include "framework/base/control_groups.h"

#include <fstream>

namespace lockstep {

namespace fs = std::filesystem;

// A line is "number:controllers:/path". Version 2 has number 0 and no controllers; where both
// versions are mounted, its groups lie in `unified`.
void visit_control_groups(const fs::path& root, const std::string& controller,
                          const std::function<void(const fs::path& group, int version)>& look) {
  const fs::path groups = root / "sys/fs/cgroup";
  // In a container the path may be the host's, and the root the process' own group.
  const auto visit_up = [&](const fs::path& from, const std::string& path, int version) {
    for (fs::path group = fs::path(path).relative_path();; group = group.parent_path()) {
      look(from / group, version);
      if (group.empty()) return;
    }
  };
  std::ifstream own(root / "proc/self/cgroup");
  for (std::string line; std::getline(own, line);) {
    const std::size_t names = line.find(':') + 1;
    const std::size_t path = line.find(':', names) + 1;
    if (names == 0 || path == 0) continue;
    const std::string controllers = line.substr(names, path - 1 - names);
    if (controllers.empty()) {
      visit_up(groups, line.substr(path), 2);
      visit_up(groups / "unified", line.substr(path), 2);
    } else if (("," + controllers + ",").find("," + controller + ",") != std::string::npos) {
      visit_up(groups / controllers, line.substr(path), 1);
    }
  }
}

std::optional<std::int64_t> number_in(const fs::path& file) {
  std::ifstream text(file);
  std::int64_t number = 0;
  if (text >> number) return number;
  return std::nullopt;
}

std::optional<std::size_t> field_of(const fs::path& file, const std::string& key) {
  std::ifstream lines(file);
  std::string name;
  std::string rest;
  while (lines >> name && std::getline(lines, rest)) {
    if (name != key) continue;
    const std::size_t unit = rest.find("kB") == std::string::npos ? 1 : 1024;
    return std::stoull(rest) * unit;
  }
  return std::nullopt;
}

}  // namespace lockstep
