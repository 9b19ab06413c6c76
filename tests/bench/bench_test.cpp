// bench is tested in Python, as its driver is written: each file is a case here.

#include <cstdlib>
#include <string>

#include "tests/catch.h"
#include "tests/support/ended.h"
#include "tests/support/programs.h"

using namespace lockstep::testing;

namespace {

void check_passes(const std::string& file) {
  ::setenv("LOCKSTEP_BENCH", BENCH_BINARY, 1);
  ::setenv("LOCKSTEP_VERSION", LOCKSTEP_VERSION, 1);
  check_status(run_program({PYTHON, "-B", LOCKSTEP_SOURCE_DIR "/tests/bench/" + file}), 0);
}

}  // namespace

TEST_CASE("the driver's figures, tables, flags and protocol are right") {
  check_passes("driver_test.py");
}

TEST_CASE("bench measures, says what is wrong, and leaves nothing behind") {
  check_passes("command_test.py");
}

TEST_CASE("plot.py draws tables") {
  check_passes("plot_test.py");
}
