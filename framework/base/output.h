#pragma once

#include <chrono>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <string>
#include <string_view>

#include "framework/base/descriptor.h"
#include "framework/base/mutex.h"
#include "framework/base/non_copyable.h"
#include "framework/base/poll_set.h"

namespace lockstep {

/// This process' stdout or stderr on the way to people, who may stop reading for hours (Ctrl-S, a
/// paused `less`). Between begin() and finish() no write waits for them: unread text stays here.
/// Beyond kMost bytes the oldest lines are left out, and a line says how many. Any thread.
class Output : private NonCopyable {
 public:
  static constexpr std::size_t kMost = std::size_t{64} << 10;
  /// A reader that takes nothing for so long counts as paused, not as slow.
  static constexpr std::chrono::milliseconds kPause{500};
  using Clock = std::chrono::steady_clock;

  /// Returns the output of a descriptor, 1 or 2.
  [[nodiscard]] static Output& of(int descriptor);

  /// Lets no write wait from here on. Forgets unread text, which in a fork is its parent's. With
  /// `keeps_all` nothing is left out; the caller asks has_room() before it writes.
  void begin(bool keeps_all = false);
  /// Waits until all is written, and from here on for each write. If the end `is_urgent`, it waits
  /// only as long as somebody reads, and later writes don't wait.
  void finish(const std::function<bool()>& is_urgent = [] { return false; });

  /// Writes text, now or later. A text that begins with kRedraw replaces unread progress.
  void write(std::string_view text);
  /// Writes unread text as far as the reader takes it. Returns whether all is written.
  bool progress();
  /// Lets `polled` call progress() once the reader takes something.
  void add_to(PollSet& polled);
  /// Returns false while a writer is to wait: for a slow reader, or if this keeps all.
  [[nodiscard]] bool has_room();

 private:
  explicit Output(int descriptor) : descriptor_(descriptor), target_(descriptor) {}
  bool pass_on() LOCKSTEP_REQUIRES(mutex_);
  void wait(std::chrono::milliseconds most) LOCKSTEP_REQUIRES(mutex_);
  void leave_out() LOCKSTEP_REQUIRES(mutex_);
  void erase(std::size_t begin, std::size_t size) LOCKSTEP_REQUIRES(mutex_);
  [[nodiscard]] std::size_t end_of_begun() const LOCKSTEP_REQUIRES(mutex_);
  [[nodiscard]] bool is_paused() const LOCKSTEP_REQUIRES(mutex_);

  const int descriptor_;
  Mutex mutex_;
  int target_ LOCKSTEP_GUARDED_BY(mutex_);  // descriptor_, or own_
  bool waits_ LOCKSTEP_GUARDED_BY(mutex_) = true;
  bool keeps_all_ LOCKSTEP_GUARDED_BY(mutex_) = false;
  Descriptor own_ LOCKSTEP_GUARDED_BY(mutex_);  // the same file, O_NONBLOCK for this object alone
  std::string unread_ LOCKSTEP_GUARDED_BY(mutex_);
  std::size_t drawn_ LOCKSTEP_GUARDED_BY(mutex_) = std::string::npos;  // where progress begins
  bool is_in_line_ LOCKSTEP_GUARDED_BY(mutex_) = false;  // the last written byte was no '\n'
  std::int64_t left_out_ LOCKSTEP_GUARDED_BY(mutex_) = 0;
  Clock::time_point taken_ LOCKSTEP_GUARDED_BY(mutex_);  // when the reader took text last
};

}  // namespace lockstep
