#include <clocale>
#include <csignal>
#include <cstdlib>
#include <iostream>
#include <locale>
#include <string>

#include "trainers/bench/hosts/child_program.h"

#if __has_include(<catch2/catch_session.hpp>)
#include <catch2/catch_session.hpp>
#else
#define CATCH_CONFIG_RUNNER
#include <catch2/catch.hpp>
#endif

namespace {

// Numbers as std::locale("de_DE.UTF-8") has them: 1.234,5.
struct Grouped : std::numpunct<char> {
  [[nodiscard]] char do_decimal_point() const override { return ','; }
  [[nodiscard]] char do_thousands_sep() const override { return '.'; }
  [[nodiscard]] std::string do_grouping() const override { return "\3"; }
};

}  // namespace

int main(int argc, char** argv) {
  if (std::getenv(lockstep::testing::kForkVariable) != nullptr) {
    std::cerr << "a fork of a test has started the tests again\n";
    return 2;
  }
  // Whoever has started the tests may ignore some, as nohup does; then launch() would, too.
  for (const int number : {SIGINT, SIGTERM, SIGHUP, SIGUSR1, SIGUSR2, SIGXCPU}) {
    std::signal(number, SIG_DFL);
  }
  // A program may have such a locale: C++ streams obey the first line, printf() and strtod() the
  // second.
  if (const char* const name = std::getenv("LOCKSTEP_LOCALE")) {
    std::locale::global(std::locale(std::locale(), new Grouped));
    if (std::setlocale(LC_NUMERIC, name) == nullptr || *std::localeconv()->decimal_point != ',') {
      std::cerr << "there is no locale " << name << " with a decimal comma\n";
      return 2;
    }
  }
  return Catch::Session().run(argc, argv);
}
