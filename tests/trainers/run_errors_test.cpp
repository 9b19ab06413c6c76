#include <exception>
#include <stdexcept>

#include "framework/base/errors.h"
#include "framework/maps/first_failure.h"
#include "framework/training/zero.h"
#include "tests/catch.h"
#include "tests/support/error_kinds.h"
#include "trainers/run/run_checkpoints.h"

namespace lockstep {
namespace {

class OwnError : public DataError {
 public:
  using DataError::DataError;
  [[nodiscard]] const char* type() const noexcept override { return "OwnError"; }
};

// What becomes of an error to which a note is added.
std::exception_ptr noted(const std::exception_ptr& error) {
  try {
    try {
      std::rethrow_exception(error);
    } catch (...) {
      rethrow_with("a note", /*logs=*/false);
    }
  } catch (...) {
    return std::current_exception();
  }
}

}  // namespace

TEST_CASE("an error that ends a run keeps its type when it gains a note") {
  for (const ErrorKind kind : testing::error_kinds()) {
    INFO(traits_of(kind).name);
    const bool stays = kind == ErrorKind::aborted || kind == ErrorKind::mismatch;
    const auto error = noted(traits_of(kind).make("bad"));
    CHECK(error_kind(error) == kind);
    CHECK(maps::text_of(error) == (stays ? "bad" : "bad\na note"));
  }
  CHECK_THROWS_AS(std::rethrow_exception(noted(std::make_exception_ptr(OwnError("bad")))),
                  OwnError);
  // Types that their names do not tell.
  const auto diverged = noted(std::make_exception_ptr(NonFiniteStep("bad")));
  CHECK_THROWS_AS(std::rethrow_exception(diverged), NonFiniteStep);
  CHECK(maps::text_of(diverged) == "bad\na note");
  const auto with_cause = noted(thrown_by([] {
    try {
      throw std::logic_error("worse");
    } catch (...) {
      std::throw_with_nested(ValueError("bad"));
    }
  }));
  CHECK_THROWS_AS(std::rethrow_exception(with_cause), ValueError);
  CHECK_THROWS_AS(std::rethrow_exception(with_cause), std::nested_exception);
  CHECK_THROWS_AS(std::rethrow_exception(noted(std::make_exception_ptr(std::logic_error("bad")))),
                  ReplicaError);
  // What is nested stays so with each further note.
  const auto twice = noted(noted(std::make_exception_ptr(std::logic_error("bad"))));
  CHECK(maps::text_of(twice) == "bad\na note\na note");
  try {
    std::rethrow_exception(twice);
  } catch (const ReplicaError& error) {
    CHECK_THROWS_AS(std::rethrow_if_nested(error), std::logic_error);
  }
}

TEST_CASE("a run lacks a replica whose connection or time is over") {
  for (const ErrorKind kind : testing::error_kinds()) {
    INFO(traits_of(kind).name);
    CHECK(lacks_replica(traits_of(kind).make("bad")) ==
          (kind == ErrorKind::comm || kind == ErrorKind::lost || kind == ErrorKind::timeout));
  }
}

}  // namespace lockstep
