#include "framework/base/errors.h"

#include "tests/catch.h"

using namespace lockstep;

TEST_CASE("an error keeps its type when it gains context") {
  try {
    ReplicaLost("gone").rethrow_with("replica 2: ");
  } catch (const ReplicaLost& error) {
    CHECK(std::string(error.what()) == "replica 2: gone");
    CHECK(std::string(error.type()) == "ReplicaLost");
    return;
  }
  FAIL("a ReplicaLost was expected");
}

TEST_CASE("exit statuses follow the error's family") {
  CHECK(exit_status(ValueError("")) == 2);
  CHECK(exit_status(DataError("")) == 2);
  CHECK(exit_status(Timeout("")) == 3);
  CHECK(exit_status(ReplicaLost("")) == 3);
  CHECK(exit_status(NameError("")) == 1);
  CHECK(exit_status(std::runtime_error("")) == 1);
}
