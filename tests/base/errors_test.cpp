#include "framework/base/errors.h"

#include <set>
#include <stdexcept>
#include <string>
#include <typeinfo>

#include "tests/catch.h"
#include "tests/support/error_kinds.h"

using namespace lockstep;
using lockstep::testing::error_kinds;

namespace {

// A program's own type, with a name of its own.
class LinkDown : public CommError {
 public:
  using CommError::CommError;
  [[nodiscard]] const char* type() const noexcept override { return "LinkDown"; }
};

// Checks the traits of E, and that errors are an E however they are made.
template <typename E>
ErrorKind check_type(const std::string& name, int status, int doubt) {
  INFO(name);
  const E made("gone");
  const ErrorKind kind = made.kind();
  CHECK(made.type() == name);
  CHECK(exit_status(made) == status);
  CHECK(traits_of(kind).doubt == doubt);
  const auto is_thrown = [&](const auto& raise, const std::string& text) {
    try {
      raise();
    } catch (const Error& error) {
      CHECK(typeid(error) == typeid(E));
      CHECK(error.what() == text);
      CHECK(error_kind(error) == kind);
      CHECK(error_kind(std::current_exception()) == kind);
      return;
    }
    FAIL("an error was expected");
  };
  is_thrown([&] { throw_as(kind, "gone"); }, "gone");
  is_thrown([&] { made.rethrow_with("replica 2: "); }, "replica 2: gone");
  return kind;
}

}  // namespace

TEST_CASE("errors have names, exit statuses and doubts, and are made by their kinds") {
  const std::set<ErrorKind> kinds{check_type<Error>("Error", 1, 0),
                                  check_type<NameError>("NameError", 1, 0),
                                  check_type<ValueError>("ValueError", 2, 0),
                                  check_type<DataError>("DataError", 2, 0),
                                  check_type<CommError>("CommError", 3, 2),
                                  check_type<ReplicaLost>("ReplicaLost", 3, 3),
                                  check_type<CollectiveMismatch>("CollectiveMismatch", 3, 1),
                                  check_type<Timeout>("Timeout", 3, 1),
                                  check_type<ReplicaError>("ReplicaError", 1, 0),
                                  check_type<Aborted>("Aborted", 3, 3)};
  CHECK(kinds.size() == error_kinds().size());
}

TEST_CASE("what is no error of ours counts as an Error") {
  CHECK(exit_status(std::runtime_error("")) == 1);
  CHECK(error_kind(std::make_exception_ptr(7)) == ErrorKind::error);
}

TEST_CASE("a program's own error is of the kind that it derives from") {
  const LinkDown error("no carrier");
  CHECK(error.kind() == ErrorKind::comm);
  CHECK(std::string(error.type()) == "LinkDown");
  CHECK(exit_status(error) == 3);
  CHECK_THROWS_AS(error.rethrow_with("replica 2: "), CommError);
}
