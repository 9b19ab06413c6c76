// Preloaded into a program, sets its clock an hour ahead.

#include <ctime>

#include <sys/syscall.h>
#include <unistd.h>

namespace {

constexpr time_t kHour = 3600;

}  // namespace

extern "C" int clock_gettime(clockid_t clock, timespec* time) noexcept {
  const long failed = ::syscall(SYS_clock_gettime, clock, time);
  if (failed == 0 && clock == CLOCK_REALTIME) time->tv_sec += kHour;
  return static_cast<int>(failed);
}

extern "C" time_t time(time_t* into) noexcept {
  timespec now{};
  (void)clock_gettime(CLOCK_REALTIME, &now);
  if (into != nullptr) *into = now.tv_sec;
  return now.tv_sec;
}
