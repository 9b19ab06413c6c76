#include "framework/base/open_file.h"

#include <cerrno>
#include <utility>

#include <fcntl.h>
#include <sys/stat.h>

#include "framework/base/limits.h"

namespace lockstep {
namespace {

OpenedFile refused(int error) {
  return {.error = error, .reason = text_of_errno(error)};
}

OpenedFile refused_kind(mode_t mode) {
  return {.reason = std::string("it is ") + kind_of_file(mode) + ", not a file"};
}

}  // namespace

OpenedFile open_file(const std::filesystem::path& path, int flags, mode_t mode) {
  struct stat status {};
  if (::stat(path.c_str(), &status) == 0 && !S_ISREG(status.st_mode)) {
    return refused_kind(status.st_mode);
  }
  // It may have become a FIFO meanwhile, hence O_NONBLOCK, which means nothing to a regular file …
  const int safe = flags | O_CLOEXEC | O_NOCTTY | O_NONBLOCK;
  Descriptor descriptor(::open(path.c_str(), safe, mode));
  // … unless another program has a lease of it, as servers of NFS and Samba do: then open() fails
  // instead of waiting for the lease's end.
  if (!descriptor.open() && errno == EWOULDBLOCK) {
    descriptor = Descriptor(::open(path.c_str(), safe & ~O_NONBLOCK, mode));
  }
  if (!descriptor.open() || ::fstat(descriptor.get(), &status) != 0) return refused(errno);
  if (!S_ISREG(status.st_mode)) return refused_kind(status.st_mode);
  return {.descriptor = std::move(descriptor)};
}

const char* kind_of_file(mode_t mode) noexcept {
  if (S_ISDIR(mode)) return "a folder";
  if (S_ISFIFO(mode)) return "a FIFO";
  if (S_ISSOCK(mode)) return "a socket";
  if (S_ISLNK(mode)) return "a link";
  return S_ISREG(mode) ? "a file" : "a device";
}

}  // namespace lockstep
