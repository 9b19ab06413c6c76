#pragma once

#include <filesystem>
#include <string>

#include "tests/support/temporary_folder.h"

namespace lockstep::testing {

/// A machine's files about control groups, in a folder that stands for its root.
class ControlGroups {
 public:
  explicit ControlGroups(const std::string& own) { write("proc/self/cgroup", own); }
  void write(const std::string& file, const std::string& text) const { folder_.write(file, text); }
  [[nodiscard]] const std::filesystem::path& root() const { return folder_.path(); }

 private:
  TemporaryFolder folder_;
};

}  // namespace lockstep::testing
