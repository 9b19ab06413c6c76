#pragma once

#include <filesystem>
#include <optional>
#include <string_view>

#include "framework/telemetry/file.h"

namespace lockstep {

/// A file that gets its name once its content is on the disk: whoever opens it, even after a crash,
/// finds all of it. Until then it has no name, and whatever ends the process leaves nothing behind;
/// where the file system can't have that (O_TMPFILE), it has a temporary one, which the destructor
/// removes. Every failure throws an Error that names the file and the reason.
class NewFile {
 public:
  NewFile(std::filesystem::path path, std::string_view text);
  NewFile(const NewFile&) = delete;
  NewFile& operator=(const NewFile&) = delete;
  ~NewFile();

  /// Gives it its name, unless a file has that already: of several processes that do this at once,
  /// one gets true.
  [[nodiscard]] bool publish();
  /// Gives it its name in any case, in place of a file that has it.
  void publish_over();

 private:
  [[noreturn]] void fail(int reason) const;
  /// Gives it `name`; 0, or the errno why not.
  int link_as(const std::filesystem::path& name);

  std::filesystem::path path_;
  std::filesystem::path temporary_;  // empty while it has no name
  std::optional<File> file_;
};

/// Removes the temporary files of `path` that processes have left which were killed.
void sweep_temporary_files(const std::filesystem::path& path);

}  // namespace lockstep
