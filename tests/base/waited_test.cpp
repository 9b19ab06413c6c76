#include "framework/base/waited.h"

#include <chrono>

#include "tests/catch.h"

using namespace lockstep;
using std::chrono::milliseconds;

TEST_CASE("a gap between two looks does not count as waiting") {
  const Waited::Clock::time_point begin{};
  Waited waited(begin);
  const auto look = [&](int ms) { return waited.look(Waited::never(), begin + milliseconds(ms)); };
  CHECK(look(50) == milliseconds(50));
  CHECK(look(100) == milliseconds(100));
  CHECK(look(3'600'000) == milliseconds(100) + Waited::kLongestGap);
  CHECK(look(3'600'050) == milliseconds(150) + Waited::kLongestGap);
}

TEST_CASE("nobody is late before they could come") {
  const Waited::Clock::time_point begin{};
  Waited waited(begin);
  waited.look(Waited::never(), begin + milliseconds(100));
  CHECK(waited.late() == milliseconds(100));
  CHECK(waited.look(begin + milliseconds(120), begin + milliseconds(150)) == milliseconds(150));
  CHECK(waited.late() == milliseconds(30));
  waited.look(begin + milliseconds(120), begin + milliseconds(200));
  CHECK(waited.late() == milliseconds(80));
}
