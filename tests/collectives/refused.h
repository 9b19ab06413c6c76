#pragma once

#include <exception>
#include <functional>
#include <regex>
#include <string>

#include "framework/base/text.h"
#include "tests/collectives/cases.h"

namespace lockstep::testing {

/// The message of the E that `call` throws, its line numbers left out.
template <typename E>
std::string message_of(const std::function<void()>& call) {
  try {
    call();
  } catch (const E& error) {
    return std::regex_replace(error.what(), std::regex(R"(\((\w+\.cpp):\d+\))"), "($1)");
  } catch (const std::exception& error) {
    return str("an error of another type: ", error.what());
  }
  return "no error";
}

/// Throws unless `call` throws an E with exactly the `expected` message.
template <typename E>
void refused(const std::string& expected, const std::function<void()>& call) {
  const std::string message = message_of<E>(call);
  expect(message == expected, str("expected: ", expected, "\nbut got:  ", message));
}

}  // namespace lockstep::testing
