#include "framework/base/poll_set.h"

#include <array>
#include <chrono>
#include <string>
#include <utility>

#include <fcntl.h>
#include <unistd.h>

#include "framework/base/descriptor.h"
#include "tests/catch.h"

namespace lockstep {
namespace {

using namespace std::chrono_literals;

std::pair<Descriptor, Descriptor> pipe_ends() {
  std::array<int, 2> ends{};
  REQUIRE(::pipe2(ends.data(), O_CLOEXEC) == 0);
  return {Descriptor(ends[0]), Descriptor(ends[1])};
}

void write_byte(const Descriptor& to) {
  REQUIRE(::write(to.get(), "x", 1) == 1);
}

}  // namespace

TEST_CASE("a poll set calls the handlers of what has come, in their order") {
  auto [first, to_first] = pipe_ends();
  auto [second, to_second] = pipe_ends();
  auto [third, to_third] = pipe_ends();
  std::string called;
  const auto wait = [&](std::chrono::milliseconds most) {
    PollSet polled;
    polled.add(first.get(), [&](short events) { called += events == POLLIN ? "1" : "?"; });
    polled.add(second.get(), [&](short) { called += "2"; });
    polled.add(-1, [&](short) { called += "none"; });
    polled.add({third.get(), POLLIN, 0},
               [&](short events) { called += (events & POLLHUP) != 0 ? "end" : "3"; });
    polled.wait(most, [&] { called += "woken "; });
    return std::exchange(called, "");
  };
  CHECK(wait(0ms) == "woken ");
  CHECK(wait(1ms) == "woken ");
  write_byte(to_third);
  write_byte(to_first);
  CHECK(wait(std::chrono::milliseconds::max()) == "woken 13");
  to_third.close();
  CHECK(wait(10'000ms) == "woken 1end");
}

TEST_CASE("a poll set without descriptors is empty, and waits for its time") {
  PollSet polled;
  CHECK(polled.is_empty());
  polled.add(-1);
  CHECK(polled.is_empty());
  const auto begin = std::chrono::steady_clock::now();
  polled.wait(20ms);
  CHECK(std::chrono::steady_clock::now() - begin >= 19ms);
  auto [reader, writer] = pipe_ends();
  polled.add(reader.get());
  CHECK_FALSE(polled.is_empty());
}

TEST_CASE("waiting for one descriptor tells whether an event has come") {
  auto [reader, writer] = pipe_ends();
  CHECK_FALSE(wait_for({reader.get(), POLLIN, 0}));
  CHECK_FALSE(wait_for({-1, POLLIN, 0}));
  const auto begin = std::chrono::steady_clock::now();
  CHECK_FALSE(wait_for({reader.get(), POLLIN, 0}, 20ms));
  CHECK(std::chrono::steady_clock::now() - begin >= 19ms);
  CHECK(wait_for({writer.get(), POLLOUT, 0}, 10'000ms));
  write_byte(writer);
  CHECK(wait_for({reader.get(), POLLIN, 0}));
}

}  // namespace lockstep
