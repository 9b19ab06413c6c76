// How replicas meet whose collectives have ended.

#include "framework/checkpoint/meeting.h"

#include <chrono>
#include <csignal>
#include <filesystem>
#include <future>
#include <optional>
#include <string>

#include <sys/resource.h>

#include "tests/catch.h"
#include "tests/support/temporary_folder.h"

namespace lockstep::checkpoint {
namespace {

constexpr std::chrono::minutes kPatience{2};

// A replica that ended at once would end the job with an error that follows from replica 0's.
TEST_CASE("a replica that can't tell what it has waits for the outcome, and none for it") {
  const testing::TemporaryFolder folder;
  const auto meeting = [&](std::int64_t replica) {
    return Meeting(folder.path() / "meeting", replica, 2, [] { return false; });
  };
  auto* const on_full = std::signal(SIGXFSZ, SIG_IGN);
  rlimit before{};
  REQUIRE(::getrlimit(RLIMIT_FSIZE, &before) == 0);
  rlimit little = before;
  little.rlim_cur = 100;
  REQUIRE(::setrlimit(RLIMIT_FSIZE, &little) == 0);
  auto outcome = std::async(std::launch::async, [&] {
    const Meeting second = meeting(1);
    second.arrive();
    try {
      second.tell(std::string(1000, 'x'));
    } catch (const Error& error) {
      return std::optional<std::string>(error.what());
    }
    std::optional<std::string> its = second.outcome(kPatience);
    second.leave();
    return its;
  });
  const Meeting first = meeting(0);
  first.arrive();
  first.tell("what replica 0 has");
  const auto heard = first.hear(kPatience);
  CHECK(heard.at(0) == "what replica 0 has");
  CHECK(!heard.at(1));
  first.conclude("what comes of it");
  CHECK(outcome.get() == "what comes of it");
  first.leave();
  CHECK(!std::filesystem::exists(folder.path() / "meeting"));
  ::setrlimit(RLIMIT_FSIZE, &before);
  std::signal(SIGXFSZ, on_full);
}

}  // namespace
}  // namespace lockstep::checkpoint
