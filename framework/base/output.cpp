#include "framework/base/output.h"

#include <algorithm>
#include <cerrno>
#include <climits>
#include <utility>

#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include "framework/base/terminal.h"
#include "framework/base/text.h"

namespace lockstep {

Output& Output::of(int descriptor) {
  // Never destroyed: a thread may still write while the program's statics go away.
  static Output* const both[] = {new Output(STDOUT_FILENO), new Output(STDERR_FILENO)};
  return *both[descriptor == STDOUT_FILENO ? 0 : 1];
}

void Output::begin(bool keeps_all) {
  const MutexLock lock(mutex_);
  waits_ = false;
  keeps_all_ = keeps_all;
  unread_.clear();
  left_out_ = 0;
  // poll() promises no room for a whole text: other processes write, too, and a terminal may be
  // stopped meanwhile. The file is opened anew, since they all would see O_NONBLOCK on the shell's.
  struct stat file {};
  const bool has_reader =
      ::fstat(descriptor_, &file) == 0 && (S_ISFIFO(file.st_mode) || S_ISCHR(file.st_mode));
  own_ = Descriptor(has_reader ? ::open(str("/proc/self/fd/", descriptor_).c_str(),
                                        O_WRONLY | O_NONBLOCK | O_NOCTTY | O_CLOEXEC)
                               : -1);
  target_ = own_.open() ? own_.get() : descriptor_;
}

void Output::finish(const std::function<bool()>& is_urgent) {
  const MutexLock lock(mutex_);
  while (!pass_on() && !(is_paused() && is_urgent())) wait(kPause / 5);
  unread_.clear();
  waits_ = !is_urgent();
  target_ = descriptor_;
  own_.close();
}

void Output::write(std::string_view text) {
  const MutexLock lock(mutex_);
  if (unread_.empty()) taken_ = Clock::now();
  const bool draws = text.starts_with(kRedraw);
  if (draws && drawn_ < unread_.size()) unread_.resize(drawn_);
  drawn_ = draws && !text.ends_with('\n') ? unread_.size() : std::string::npos;
  unread_ += text;
  while (!pass_on() && waits_) wait(std::chrono::hours(1));
  if (unread_.size() > kMost && !keeps_all_) leave_out();
}

bool Output::progress() {
  const MutexLock lock(mutex_);
  return pass_on();
}

void Output::add_to(PollSet& polled) {
  const MutexLock lock(mutex_);
  polled.add({unread_.empty() ? -1 : target_, POLLOUT, 0}, [this](short) { progress(); });
}

bool Output::has_room() {
  const MutexLock lock(mutex_);
  return unread_.size() < kMost / 2 || (!keeps_all_ && is_paused());
}

void Output::wait(std::chrono::milliseconds most) {
  const int target = target_;
  mutex_.unlock();
  wait_for({target, POLLOUT, 0}, most);
  mutex_.lock();
}

bool Output::pass_on() {
  while (!unread_.empty() && wait_for({target_, POLLOUT, 0})) {
    if (left_out_ > 0) {
      const std::string lines = counted(std::exchange(left_out_, 0), "line");
      unread_.insert(end_of_begun(), str(line_start(descriptor_), "lockstep: ", lines,
                                         " left out here, which nobody read in time\n"));
      drawn_ = std::string::npos;
    }
    // A pipe that can be written to has room for this much.
    const ssize_t count =
        ::write(target_, unread_.data(), std::min(unread_.size(), std::size_t{PIPE_BUF}));
    if (count < 0 && errno == EINTR) continue;
    if (count < 0 && errno == EAGAIN) return false;
    if (count < 0) unread_.clear();  // nobody reads any more
    if (count <= 0) continue;
    const auto size = static_cast<std::size_t>(count);
    is_in_line_ = unread_[size - 1] != '\n';
    erase(0, size);
    taken_ = Clock::now();
  }
  return unread_.empty();
}

// Leaves out whole lines behind a line that the reader has in part.
void Output::leave_out() {
  const std::size_t begin = end_of_begun();
  const std::size_t last = unread_.find('\n', begin + unread_.size() - kMost);
  const std::size_t size = std::min(last, unread_.size() - 1) + 1 - begin;
  left_out_ += std::max<std::int64_t>(1, std::ranges::count(unread_.substr(begin, size), '\n'));
  erase(begin, size);
}

void Output::erase(std::size_t begin, std::size_t size) {
  unread_.erase(begin, size);
  drawn_ = drawn_ == std::string::npos || drawn_ < begin + size ? std::string::npos : drawn_ - size;
}

std::size_t Output::end_of_begun() const {
  return is_in_line_ ? unread_.find('\n') + 1 : 0;
}

bool Output::is_paused() const {
  return !unread_.empty() && Clock::now() - taken_ > kPause;
}

}  // namespace lockstep
