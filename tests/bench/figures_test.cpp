#include <string>

#include "framework/base/errors.h"
#include "tests/catch.h"
#include "tests/support/message_of.h"
#include "trainers/bench/reports/operation.h"
#include "trainers/bench/reports/report.h"
#include "trainers/bench/reports/text.h"

using namespace lockstep;
using namespace lockstep::bench;
using lockstep::testing::message_of;

TEST_CASE("numbers have three digits, and times the unit in which they have") {
  CHECK(digits_text(0) == "0.0000");
  CHECK(digits_text(0.01234) == "0.0123");
  CHECK(digits_text(0.5) == "0.500");
  CHECK(digits_text(1.234) == "1.23");
  CHECK(digits_text(9.996) == "10.0");
  CHECK(digits_text(99.96) == "100");
  CHECK(digits_text(1234) == "1234");
  CHECK(time_text(0.25e-6) == "0.250 us");
  CHECK(time_text(3.02e-6) == "3.02 us");
  CHECK(time_text(999.4e-6) == "999 us");
  CHECK(time_text(999.7e-6) == "1.00 ms");
  CHECK(time_text(12.44e-3) == "12.4 ms");
  CHECK(time_text(1.25) == "1.25 s");
}

TEST_CASE("quartiles interpolate between the samples around them") {
  const Quartiles one = quartiles({7});
  CHECK(one.lower == 7);
  CHECK(one.median == 7);
  CHECK(one.upper == 7);
  const Quartiles odd = quartiles({5, 1, 4, 2, 3});
  CHECK(odd.lower == 2);
  CHECK(odd.median == 3);
  CHECK(odd.upper == 4);
  const Quartiles even = quartiles({40, 10, 30, 20});
  CHECK(even.lower == Approx(17.5));
  CHECK(even.median == Approx(25));
  CHECK(even.upper == Approx(32.5));
  CHECK(message_of<ValueError>([] { (void)quartiles({}); }) == "quartiles: there are no samples");
}

TEST_CASE("operations have their names, and say what they move") {
  for (const std::string name : {"all_reduce", "reduce_scatter", "all_gather"})
    CHECK(name_of(parse_operation(name)) == name);
  CHECK(message_of<ValueError>([] { (void)parse_operation("allreduce"); }) ==
        "unknown operation 'allreduce' (did you mean 'all_reduce'?); there are all_reduce, "
        "reduce_scatter, all_gather");

  CHECK(usable_size(Operation::all_reduce, 3, 8) == 8);
  CHECK(usable_size(Operation::reduce_scatter, 3, 8) == 12);
  CHECK(usable_size(Operation::all_gather, 4, 1024) == 1024);
  CHECK(usable_size(Operation::all_gather, 3, 1024) == 1032);

  CHECK(bus_bytes(Operation::all_reduce, 2, 100) == Approx(100));
  CHECK(bus_bytes(Operation::all_reduce, 4, 100) == Approx(150));
  CHECK(bus_bytes(Operation::reduce_scatter, 4, 100) == Approx(75));
  CHECK(bus_bytes(Operation::all_gather, 4, 100) == Approx(75));
  CHECK(bus_bytes(Operation::all_reduce, 1, 100) == 0);

  CHECK(moved_bytes(Operation::all_reduce, 4, 100) == Approx(800));
  CHECK(moved_bytes(Operation::reduce_scatter, 4, 100) == Approx(500));
  CHECK(moved_bytes(Operation::all_gather, 4, 100) == Approx(600));
}
