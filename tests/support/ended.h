#pragma once

#include <source_location>

#include "tests/catch.h"
#include "tests/support/programs.h"

namespace lockstep::testing {

/// Checks how a program ended. A failure shows who asked, and all that the program has written.
inline void check_status(const Ended& ended, int status,
                         std::source_location where = std::source_location::current()) {
  INFO(where.file_name() << ':' << where.line() << '\n' << ended.out << ended.err);
  CHECK(ended.status == status);
}
/// The same. The test ends here if it fails.
inline void require_status(const Ended& ended, int status,
                           std::source_location where = std::source_location::current()) {
  INFO(where.file_name() << ':' << where.line() << '\n' << ended.out << ended.err);
  REQUIRE(ended.status == status);
}

}  // namespace lockstep::testing
