#include "framework/storage/file.h"

#include <algorithm>
#include <atomic>
#include <cerrno>
#include <cstdio>
#include <string>
#include <system_error>

#include <fcntl.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include "framework/base/limits.h"
#include "framework/base/open_file.h"
#include "framework/base/text.h"

namespace fs = std::filesystem;

namespace lockstep {
namespace {

constexpr std::uint64_t kLeastMapped = std::uint64_t{64} << 10;

[[noreturn]] void fail(const fs::path& path, const char* what,
                       const std::string& reason = text_of_errno(errno),
                       ErrorKind kind = ErrorKind::error) {
  throw_as(kind, str(path.string(), " can't be ", what, ": ", reason));
}

fs::path folder_of(const fs::path& path) {
  return path.has_parent_path() ? path.parent_path() : fs::path(".");
}

// Temporary files next to `path` have names with this prefix and kSuffix.
std::string prefix_of(const fs::path& path) {
  return str(".", path.filename().string(), ".");
}
constexpr std::string_view kSuffix = ".tmp";

// Returns a name next to `path` that no other writer uses, in this process or on this host.
fs::path temporary_name(const fs::path& path) {
  static std::atomic<unsigned> count{0};
  return folder_of(path) / str(prefix_of(path), getpid(), "-", count.fetch_add(1), kSuffix);
}

// Maps a part of a file, from a whole page on, as it lies in the system's cache. Returns nullptr if
// the system refuses.
std::shared_ptr<std::uint8_t> map(int descriptor, std::uint64_t offset, std::size_t size) {
  void* const memory =
      ::mmap(nullptr, size, PROT_READ, MAP_PRIVATE, descriptor, static_cast<off_t>(offset));
  if (memory == MAP_FAILED) return nullptr;
  return {static_cast<std::uint8_t*>(memory), [size](void* mapped) { ::munmap(mapped, size); }};
}

}  // namespace

FileBytes FileBytes::of(std::vector<std::uint8_t> bytes) {
  const auto owner = std::make_shared<const std::vector<std::uint8_t>>(std::move(bytes));
  return {*owner, owner};
}

File::File(const fs::path& path, int flags, fs::path name, unsigned mode)
    : name_(name.empty() ? path : std::move(name)) {
  if ((flags & O_DIRECTORY) != 0) {  // also a part of O_TMPFILE
    descriptor_ = Descriptor(::open(path.c_str(), flags | O_CLOEXEC, mode));
    if (!descriptor_.open()) fail("opened");
    return;
  }
  OpenedFile opened = open_file(path, flags, mode);
  if (!opened.descriptor.open()) lockstep::fail(name_, "opened", opened.reason);
  descriptor_ = std::move(opened.descriptor);
}

void File::write(std::string_view text) const {
  while (!text.empty()) {
    const ssize_t count = ::write(descriptor_.get(), text.data(), text.size());
    if (count >= 0) {
      text.remove_prefix(static_cast<std::size_t>(count));
    } else if (errno != EINTR) {
      fail("written");
    }
  }
}

std::uint64_t File::size() const {
  struct stat status {};
  if (::fstat(descriptor_.get(), &status) != 0) fail("read");
  return static_cast<std::uint64_t>(status.st_size);
}

void File::read(std::uint64_t offset, Bytes to) const {
  const std::size_t count = read_some(offset, to);
  if (count == to.size()) return;
  throw_as(failure_, str(name_.string(), " ends at byte ", offset + count, ", too early"));
}

std::size_t File::read_some(std::uint64_t offset, Bytes to) const {
  std::size_t filled = 0;
  while (filled < to.size()) {
    const ssize_t count = ::pread(descriptor_.get(), to.data() + filled, to.size() - filled,
                                  static_cast<off_t>(offset + filled));
    if (count == 0) break;
    if (count > 0) {
      filled += static_cast<std::size_t>(count);
    } else if (errno != EINTR) {
      fail("read");
    }
  }
  return filled;
}

FileBytes File::content() const {
  const std::uint64_t size = this->size();
  if (size < kLeastMapped) {
    std::vector<std::uint8_t> copy(size);
    copy.resize(read_some(0, std::as_writable_bytes(std::span(copy))));
    return FileBytes::of(std::move(copy));
  }
  const auto memory = map(descriptor_.get(), 0, size);
  if (memory == nullptr) fail("mapped");
  return {{memory.get(), size}, memory};
}

void File::look(std::uint64_t offset, std::uint64_t size,
                const std::function<void(ConstBytes part)>& look) const {
  constexpr std::uint64_t kPart = std::uint64_t{8} << 20;
  const auto page = static_cast<std::uint64_t>(::sysconf(_SC_PAGESIZE));
  const std::uint64_t whole = this->size();  // a page beyond the end has zeros
  std::vector<std::byte> copy;
  while (size > 0) {
    const std::uint64_t begin = offset / page * page;
    const std::uint64_t end = std::min(offset + size, begin + kPart);
    std::shared_ptr<std::uint8_t> view;
    if (end - offset >= kLeastMapped && end <= whole) {
      view = map(descriptor_.get(), begin, end - begin);
    }
    // An unreadable page is an error here; where it is used it would be a signal. Before Linux 5.14
    // this fails, and the part is copied.
    if (view && ::madvise(view.get(), end - begin, MADV_POPULATE_READ) != 0) view.reset();
    if (view) {
      look(std::as_bytes(std::span(view.get(), end - begin)).subspan(offset - begin));
    } else {
      copy.resize(end - offset);
      read(offset, copy);
      look(copy);
    }
    size -= end - offset;
    offset = end;
  }
}

void File::begin_sync(std::uint64_t offset, std::uint64_t size) const noexcept {
  // A failure comes back as an error of sync().
  (void)::sync_file_range(descriptor_.get(), static_cast<off_t>(offset), static_cast<off_t>(size),
                          SYNC_FILE_RANGE_WRITE);
}

void File::sync() const {
  // Some file systems can't sync: their files are then as safe as they get.
  if (::fsync(descriptor_.get()) != 0 && errno != EINVAL) fail("synced");
}

bool File::is_in_place() const noexcept {
  struct stat here {};
  struct stat there {};
  return ::fstat(descriptor_.get(), &here) == 0 && ::stat(name_.c_str(), &there) == 0 &&
         here.st_dev == there.st_dev && here.st_ino == there.st_ino;
}

void File::fail(const char* what) const {
  lockstep::fail(name_, what, text_of_errno(errno), failure_);
}

NewFile::NewFile(fs::path path, unsigned mode) : path_(std::move(path)), mode_(mode) {
  try {
    file_.emplace(folder_of(path_), O_TMPFILE | O_RDWR, path_, mode_);
  } catch (const Error&) {
    make_temporary();
  }
}

void NewFile::make_temporary() {
  temporary_ = temporary_name(path_);
  file_.emplace(temporary_, O_WRONLY | O_CREAT | O_EXCL, path_, mode_);
}

NewFile::~NewFile() {
  if (!temporary_.empty()) ::unlink(temporary_.c_str());
}

bool NewFile::publish() {
  file_->sync();
  return link();
}

void NewFile::publish_over() {
  struct stat old {};
  if (::lstat(path_.c_str(), &old) == 0 && !S_ISREG(old.st_mode) && !S_ISLNK(old.st_mode)) {
    fail(path_, "written", str("it is ", kind_of_file(old.st_mode), ", not a file"));
  }
  file_->sync();
  if (temporary_.empty()) {
    if (link()) return;
    const fs::path name = temporary_name(path_);
    if (const int reason = link_as(name)) fail(path_, "written", text_of_errno(reason));
    temporary_ = name;
  }
  if (::rename(temporary_.c_str(), path_.c_str()) != 0) fail(path_, "written");
  temporary_.clear();
  sync_parent(path_);
}

bool NewFile::link() {
  const int reason = link_as(path_);
  if (reason == 0) return true;
  // A writer that has published meanwhile may have swept this temporary name away.
  std::error_code error;
  if (reason == EEXIST || fs::exists(fs::symlink_status(path_, error))) return false;
  fail(path_, "written", text_of_errno(reason));
}

int NewFile::link_as(const fs::path& name) {
  int result = 0;
  if (temporary_.empty()) {
    const std::string self = str("/proc/self/fd/", file_->descriptor());
    result = ::linkat(AT_FDCWD, self.c_str(), AT_FDCWD, name.c_str(), AT_SYMLINK_FOLLOW);
    if (result != 0 && errno != EEXIST) {  // no /proc, or a file system or sandbox without links
      const FileBytes content = file_->content();
      make_temporary();
      file_->write({reinterpret_cast<const char*>(content.bytes.data()), content.bytes.size()});
      file_->sync();
      return link_as(name);
    }
  } else {
    result = ::renameat2(AT_FDCWD, temporary_.c_str(), AT_FDCWD, name.c_str(), RENAME_NOREPLACE);
    if (result == 0) {
      temporary_.clear();
    } else if (errno == EINVAL || errno == ENOSYS) {  // NFS: the temporary name goes in the end
      result = ::link(temporary_.c_str(), name.c_str());
      if (result != 0 && (errno == EPERM || errno == ENOSYS || errno == EOPNOTSUPP)) {
        return take_name(name);
      }
    }
  }
  if (result != 0) return errno;
  sync_parent(name);
  return 0;
}

// A file system without links, such as FAT or an object store: for a moment an empty file holds the
// name against others.
int NewFile::take_name(const fs::path& name) {
  const Descriptor held(::open(name.c_str(), O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC, 0666));
  if (!held.open()) return errno;
  if (::rename(temporary_.c_str(), name.c_str()) != 0) {
    const int reason = errno;
    ::unlink(name.c_str());
    return reason;
  }
  temporary_.clear();
  sync_parent(name);
  return 0;
}

void sync_parent(const fs::path& path) {
  File(folder_of(path), O_RDONLY | O_DIRECTORY).sync();
}

void write_file_atomically(const fs::path& path, std::string_view text) {
  NewFile file(path);
  file.write(text);
  file.publish_over();
}

bool write_new_file(const fs::path& path, std::string_view text) {
  NewFile file(path);
  file.write(text);
  return file.publish();
}

void sweep_temporary_files(const fs::path& path) {
  const std::string prefix = prefix_of(path);
  std::error_code error;
  for (fs::directory_iterator entry(folder_of(path), error), end; !error && entry != end;
       entry.increment(error)) {
    const std::string name = entry->path().filename();
    if (name.size() < prefix.size() + kSuffix.size() || !name.starts_with(prefix) ||
        !name.ends_with(kSuffix)) {
      continue;
    }
    std::error_code ignored;
    fs::remove(entry->path(), ignored);
  }
}

}  // namespace lockstep
