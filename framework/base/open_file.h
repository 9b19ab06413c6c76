#pragma once

#include <filesystem>
#include <string>

#include <sys/types.h>

#include "framework/base/descriptor.h"

namespace lockstep {

/// An opened file, or the reason why it is not open.
struct OpenedFile {
  Descriptor descriptor{};  ///< not open where it was refused
  int error = 0;            ///< errno, where the system has refused it
  std::string reason{};     ///< "No such file or directory", "it is a FIFO, not a file"
};

/// Opens a regular file as open(2) does with `flags`; a new one gets the permissions of `mode` that
/// the umask leaves. Anything else (a folder, FIFO, socket or device) is refused at once, unopened:
/// to open it may wait without end, or do something. Every file that a user names, or may have put
/// in place of one of ours, is opened by this. Any thread.
[[nodiscard]] OpenedFile open_file(const std::filesystem::path& path, int flags,
                                   mode_t mode = 0666);

/// Returns a file's kind: "a folder", "a FIFO", "a socket", "a device", "a link" or "a file".
[[nodiscard]] const char* kind_of_file(mode_t mode) noexcept;

}  // namespace lockstep
