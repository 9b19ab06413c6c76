#include <unistd.h>

#include "tests/catch.h"
#include "tests/support/programs.h"

using namespace lockstep::testing;

TEST_CASE("a fork of a test does not start the tests again") {
  const Ended end = run_forked([] {
    const char* const arguments[] = {"tests", "--help", nullptr};
    ::execv("/proc/self/exe", const_cast<char* const*>(arguments));
    return 98;
  });
  CHECK(end.status == 2);
  CHECK(end.out.empty());
  CHECK_THAT(end.err, ContainsSubstring("a fork of a test has started the tests again"));
}
