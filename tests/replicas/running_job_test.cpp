#include "framework/replicas/running_job.h"

#include <cstddef>
#include <cstdint>
#include <string>
#include <vector>

#include "framework/base/errors.h"
#include "framework/comm/store.h"
#include "framework/replicas/host_meeting.h"
#include "framework/watch/board.h"
#include "tests/catch.h"
#include "tests/support/captured_stderr.h"
#include "tests/support/occurrences.h"

using namespace lockstep;

// A group's key may be used again on a host alone. On several it says that they mean one call.
TEST_CASE("a stall that several hosts find is told once, and one of a host alone each time") {
  for (const std::size_t number : {1U, 2U}) {
    replicas::Hosts hosts{
        replicas::HostLinks(0, number),
        replicas::make_plan({.replicas = 2, .workers = 2}, std::vector<std::int64_t>(number),
                            std::vector<std::int64_t>(number, 8))};
    watch::Board board(2);
    comm::StoreServer store;
    std::vector<std::string> marked;
    const LaunchOptions options{.after_stall = [&](const std::string& warning) {
      marked.push_back(warning);
      throw DataError("no room");
    }};
    replicas::RunningJob job(hosts, options, store, board);
    std::string told;
    {
      const testing::CapturedStderr captured;
      for (const int times : {1, 1, 2}) job.warn({1, 1, times, "stalled"});
      told = captured.text();
    }
    INFO(told);
    const std::size_t times = number == 1 ? 3 : 2;
    CHECK(testing::count(told, "lockstep: warning: stalled\n") == times);
    CHECK(marked == std::vector<std::string>(times, "stalled"));
    CHECK(testing::count(told, "lockstep: warning: after_stall: DataError: no room\n") == times);
  }
}
