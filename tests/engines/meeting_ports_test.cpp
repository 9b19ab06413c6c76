#include "framework/engines/meeting_ports.h"

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <limits>
#include <set>

#include "tests/catch.h"

using lockstep::engines::meeting_ports;

TEST_CASE("ports follow from job and step, above those that Linux gives to connections") {
  CHECK(meeting_ports(42, 0)[0] == 64128);
  CHECK(meeting_ports(42, 1)[0] == 64129);
  const std::uint64_t most = std::numeric_limits<std::uint64_t>::max();
  for (const std::uint64_t job : {std::uint64_t{0}, std::uint64_t{18}, std::uint64_t{4095}, most}) {
    for (const std::uint64_t step : {std::uint64_t{0}, std::uint64_t{63}, most}) {
      const auto ports = meeting_ports(job, step);
      CHECK(std::ranges::min(ports) >= 61440);
      CHECK(std::set<std::uint16_t>(ports.begin(), ports.end()).size() == ports.size());
    }
  }
}

TEST_CASE("the first 8 steps of 64 jobs in a row have no port in common") {
  std::set<std::uint16_t> all;
  for (std::uint64_t job = 1000; job < 1064; ++job) {
    for (std::uint64_t step = 0; step < 8; ++step) {
      const auto ports = meeting_ports(job, step);
      all.insert(ports.begin(), ports.end());
    }
  }
  CHECK(all.size() == std::size_t{64 * 8 * 8});
}
