#include "framework/telemetry/file.h"

#include <cerrno>
#include <cstring>
#include <utility>

#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include "framework/base/errors.h"
#include "framework/base/text.h"

namespace lockstep {
namespace {

[[noreturn]] void fail(const std::filesystem::path& path, const char* what) {
  const int reason = errno;
  throw Error(str(path.string(), " can't be ", what, ": ", std::strerror(reason)));
}

}  // namespace

File::File(const std::filesystem::path& path, int flags, std::filesystem::path name)
    : name_(name.empty() ? path : std::move(name)),
      descriptor_(::open(path.c_str(), flags | O_CLOEXEC, 0666)) {
  if (descriptor_ < 0) fail(name_, "opened");
}

File::~File() {
  ::close(descriptor_);
}

void File::write(std::string_view text) const {
  while (!text.empty()) {
    const ssize_t count = ::write(descriptor_, text.data(), text.size());
    if (count >= 0) {
      text.remove_prefix(static_cast<std::size_t>(count));
    } else if (errno != EINTR) {
      fail(name_, "written");
    }
  }
}

void File::sync() const {
  // Some file systems can't: what they hold is then as safe as it gets.
  if (::fsync(descriptor_) != 0 && errno != EINVAL) fail(name_, "synced");
}

bool File::is_in_place() const noexcept {
  struct stat here {};
  struct stat there {};
  return ::fstat(descriptor_, &here) == 0 && ::stat(name_.c_str(), &there) == 0 &&
         here.st_dev == there.st_dev && here.st_ino == there.st_ino;
}

}  // namespace lockstep
