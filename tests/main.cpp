#include <cstdlib>
#include <iostream>

#include "tests/support/child_program.h"

#if __has_include(<catch2/catch_session.hpp>)
#include <catch2/catch_session.hpp>
#else
#define CATCH_CONFIG_RUNNER
#include <catch2/catch.hpp>
#endif

int main(int argc, char** argv) {
  if (std::getenv(lockstep::testing::kForkVariable) != nullptr) {
    std::cerr << "a fork of a test has started the tests again\n";
    return 2;
  }
  return Catch::Session().run(argc, argv);
}
