#include <csignal>
#include <cstdlib>
#include <iostream>

#include "trainers/bench/testing/child_program.h"

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
  // Whoever has started the tests may ignore some, as nohup does; then launch() would, too.
  for (const int number : {SIGINT, SIGTERM, SIGHUP, SIGUSR1, SIGUSR2, SIGXCPU}) {
    std::signal(number, SIG_DFL);
  }
  return Catch::Session().run(argc, argv);
}
