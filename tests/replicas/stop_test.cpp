#include <csignal>

#include <unistd.h>

#include "framework/collectives/axis_index.h"
#include "framework/collectives/psum.h"
#include "framework/replicas/launch.h"
#include "tests/catch.h"

using namespace lockstep;

namespace {

// Catch2 has handlers, which launch() would leave alone.
class DefaultStops {
 public:
  DefaultStops() : before_{std::signal(SIGINT, SIG_DFL), std::signal(SIGTERM, SIG_DFL)} {}
  ~DefaultStops() {
    std::signal(SIGINT, before_[0]);
    std::signal(SIGTERM, before_[1]);
  }
  DefaultStops(const DefaultStops&) = delete;
  DefaultStops& operator=(const DefaultStops&) = delete;

 private:
  void (*before_[2])(int);
};

}  // namespace

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
