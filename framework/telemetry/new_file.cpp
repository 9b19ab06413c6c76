#include "framework/telemetry/new_file.h"

#include <atomic>
#include <cerrno>
#include <cstdio>
#include <cstring>
#include <string>
#include <system_error>
#include <utility>

#include <fcntl.h>
#include <unistd.h>

#include "framework/base/errors.h"
#include "framework/base/text.h"

namespace fs = std::filesystem;

namespace lockstep {
namespace {

fs::path folder_of(const fs::path& path) {
  return path.has_parent_path() ? path.parent_path() : fs::path(".");
}

// How names of temporary files next to `path` begin and end.
std::string prefix_of(const fs::path& path) {
  return str(".", path.filename().string(), ".");
}
constexpr std::string_view kSuffix = ".tmp";

// A name next to `path` that no other writer uses: of this process, or another of this host.
fs::path temporary_name(const fs::path& path) {
  static std::atomic<unsigned> count{0};
  return folder_of(path) / str(prefix_of(path), getpid(), "-", count.fetch_add(1), kSuffix);
}

}  // namespace

NewFile::NewFile(fs::path path, std::string_view text) : path_(std::move(path)) {
  try {
    file_.emplace(folder_of(path_), O_TMPFILE | O_WRONLY, path_);
  } catch (const Error&) {
    temporary_ = temporary_name(path_);
    file_.emplace(temporary_, O_WRONLY | O_CREAT | O_EXCL, path_);
  }
  try {
    file_->write(text);
    file_->sync();
  } catch (...) {
    if (!temporary_.empty()) ::unlink(temporary_.c_str());
    throw;
  }
}

NewFile::~NewFile() {
  if (!temporary_.empty()) ::unlink(temporary_.c_str());
}

bool NewFile::publish() {
  const int reason = link_as(path_);
  if (reason == 0) return true;
  // Whoever has published meanwhile may have swept this one's temporary name away.
  std::error_code error;
  if (reason == EEXIST || fs::exists(fs::symlink_status(path_, error))) return false;
  fail(reason);
}

void NewFile::publish_over() {
  if (temporary_.empty()) {
    if (publish()) return;
    const fs::path name = temporary_name(path_);
    if (const int reason = link_as(name)) fail(reason);
    temporary_ = name;
  }
  if (::rename(temporary_.c_str(), path_.c_str()) != 0) fail(errno);
  temporary_.clear();
  File(folder_of(path_), O_RDONLY | O_DIRECTORY).sync();
}

int NewFile::link_as(const fs::path& name) {
  int result = 0;
  if (temporary_.empty()) {
    const std::string self = str("/proc/self/fd/", file_->descriptor());
    result = ::linkat(AT_FDCWD, self.c_str(), AT_FDCWD, name.c_str(), AT_SYMLINK_FOLLOW);
  } else {
    result = ::renameat2(AT_FDCWD, temporary_.c_str(), AT_FDCWD, name.c_str(), RENAME_NOREPLACE);
    if (result == 0) {
      temporary_.clear();
    } else if (errno == EINVAL || errno == ENOSYS) {  // NFS: the temporary name goes in the end
      result = ::link(temporary_.c_str(), name.c_str());
    }
  }
  if (result != 0) return errno;
  // A name is durable once its folder is.
  File(folder_of(name), O_RDONLY | O_DIRECTORY).sync();
  return 0;
}

void NewFile::fail(int reason) const {
  throw Error(str(path_.string(), " can't be written: ", std::strerror(reason)));
}

void sweep_temporary_files(const fs::path& path) {
  const std::string prefix = prefix_of(path);
  std::error_code error;
  for (const auto& entry : fs::directory_iterator(folder_of(path), error)) {
    const std::string name = entry.path().filename();
    if (name.size() < prefix.size() + kSuffix.size() || !name.starts_with(prefix) ||
        !name.ends_with(kSuffix)) {
      continue;
    }
    fs::remove(entry.path(), error);
  }
}

}  // namespace lockstep
