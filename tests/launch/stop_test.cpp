#include <csignal>
#include <cstdint>

#include <sys/resource.h>
#include <unistd.h>

#include "framework/base/non_copyable.h"
#include "framework/collectives/axis_index.h"
#include "framework/collectives/psum.h"
#include "framework/launch/launch.h"
#include "framework/launch/stop_signals.h"
#include "tests/catch.h"
#include "tests/support/programs.h"

using namespace lockstep;

namespace {

// Removes Catch2's handlers for a while: launch() would leave them alone.
class DefaultStops : private NonCopyable {
 public:
  DefaultStops() : before_{std::signal(SIGINT, SIG_DFL), std::signal(SIGTERM, SIG_DFL)} {}
  ~DefaultStops() {
    std::signal(SIGINT, before_[0]);
    std::signal(SIGTERM, before_[1]);
  }

 private:
  void (*before_[2])(int);
};

}  // namespace

TEST_CASE("all threads' processor time counts for how early the end of it is told") {
  constexpr rlim_t kHour = 3600;
  const auto warned_before = [](std::int64_t threads, rlim_t time) {
    return 2 * testing::run_forked([&] {
                 rlimit limit{time, time};
                 ::setrlimit(RLIMIT_CPU, &limit);
                 launcher::be_warned_of_cpu_limit(threads);
                 ::getrlimit(RLIMIT_CPU, &limit);
                 return static_cast<int>((limit.rlim_max - limit.rlim_cur) / 2);
               }).status;
  };
  CHECK(warned_before(1, kHour) == 30);
  CHECK(warned_before(10, kHour) == 300);
  CHECK(warned_before(100, kHour) == 360);  // a tenth of the time, and a second
  CHECK(warned_before(10, 10) == 2);
}

TEST_CASE("replicas that are threads see that the program is asked to stop") {
  const DefaultStops no_handlers;
  for (const int signal : {SIGINT, SIGTERM}) {
    int steps = 0;
    const auto run = [&] {
      while (psum(stop_requested() ? 1 : 0, "data") == 0) {
        if (axis_index("data") == 1 && ++steps == 5) (void)::kill(::getpid(), signal);
      }
    };
    CHECK(launch(run, {.replicas = 3, .mode = LaunchMode::threads, .on_stop = OnStop::ask}) ==
          128 + signal);
    CHECK(steps >= 5);
    CHECK(!stop_requested());
  }
}
