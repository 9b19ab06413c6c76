#include "framework/checkpoint/meeting.h"

#include <cerrno>
#include <fstream>
#include <iterator>
#include <system_error>
#include <thread>

#include <sys/stat.h>

#include "framework/base/limits.h"
#include "framework/base/waited.h"
#include "framework/comm/run_lock.h"

namespace fs = std::filesystem;

namespace lockstep::checkpoint {
namespace {

constexpr std::chrono::milliseconds kMoment{5};
constexpr std::chrono::milliseconds kFarewell{1000};
constexpr std::chrono::hours kAnyTime{24 * 365};

bool is_here(const fs::path& path) {
  std::error_code missing;
  // A network file system remembers for long what was not there. It looks again at a folder that
  // is opened.
  (void)fs::directory_iterator(path.parent_path(), missing);
  return fs::exists(path, missing);
}

// Looks again and again, for `patience` at most; returns what it has seen last.
bool wait_for(std::chrono::milliseconds patience, const std::function<bool()>& look) {
  Waited waited;
  const comm::RunLockRelease others_may_run;
  while (!look()) {
    if (waited.look() > patience) return look();
    std::this_thread::sleep_for(kMoment);
  }
  return true;
}

}  // namespace

Meeting::~Meeting() {
  std::error_code has_left;
  fs::rename(file_of("here", replica_), file_of("gone", replica_), has_left);
}

void Meeting::arrive() const {
  require_done<Error>(::mkdir(folder_.c_str(), 0700) == 0 || errno == EEXIST, folder_.string(),
                      " can't be made");
  write_file_atomically(file_of("here", replica_), "");
}

// A full disk may have room for another name of a file, and for no other file.
void Meeting::tell(const std::string& text) const {
  try {
    write_file_atomically(file_of("told", replica_), text);
  } catch (const Error&) {
    fs::rename(file_of("here", replica_), file_of("silent", replica_));
  }
}

std::vector<std::optional<std::string>> Meeting::hear(std::chrono::milliseconds patience) const {
  std::vector<std::optional<std::string>> told;
  const auto begin = std::chrono::steady_clock::now();
  for (std::int64_t replica = 0; replica < replicas_; ++replica) {
    const auto waited = std::chrono::duration_cast<std::chrono::milliseconds>(
        std::chrono::steady_clock::now() - begin);
    told.push_back(heard(replica, file_of("told", replica), patience - waited));
  }
  return told;
}

std::optional<std::string> Meeting::heard(std::int64_t replica, const fs::path& text,
                                          std::chrono::milliseconds patience) const {
  const auto is_gone = [&] {
    return is_here(file_of("gone", replica)) || is_here(file_of("silent", replica)) || has_ended_();
  };
  const auto has_told = [&] { return is_here(text) || is_gone(); };  // it may have left since
  if (wait_for(patience, [&] { return is_here(file_of("here", replica)) || has_told(); })) {
    (void)wait_for(kAnyTime, has_told);
  }
  if (!is_here(text)) return std::nullopt;
  std::ifstream in(text, std::ios::binary);
  return std::string(std::istreambuf_iterator<char>(in), {});
}

void Meeting::leave() const noexcept {
  std::error_code ignored;
  fs::remove(file_of("here", replica_), ignored);
  fs::remove(file_of("silent", replica_), ignored);
  if (replica_ != 0) {
    if (is_here(folder_ / "outcome")) {
      // A replica that ends may end the others at once, in the midst of tidying up.
      (void)wait_for(kFarewell, [&] { return !is_here(folder_) || has_ended_(); });
      return;
    }
    // Replica 0 may be gone: the last to leave removes the folder.
    fs::remove(file_of("told", replica_), ignored);
    fs::remove(folder_, ignored);
    return;
  }
  const auto are_gone = [&] {
    for (std::int64_t replica = 1; replica < replicas_; ++replica) {
      if (is_here(file_of("here", replica)) || is_here(file_of("silent", replica))) return false;
    }
    return true;
  };
  (void)wait_for(kFarewell, are_gone);
  fs::remove_all(folder_, ignored);
}

}  // namespace lockstep::checkpoint
