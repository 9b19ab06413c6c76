#pragma once

#include <functional>
#include <regex>
#include <string>

#include "framework/base/errors.h"
#include "framework/base/text.h"
#include "tests/collectives/cases.h"
#include "tests/support/message_of.h"

namespace lockstep::testing {

/// Returns the message of the E that `call` throws, without its line numbers, and without the leaf
/// that it names at its end.
template <typename E>
std::string message_without_lines(const std::function<void()>& call) {
  const std::string message = std::regex_replace(
      message_of<E>(call), std::regex(R"( \(leaf [^,]+, [^()]*(\([^()]*\))?\)$)"), "");
  return std::regex_replace(message, std::regex(R"(\((\w+\.cpp):\d+\))"), "($1)");
}

/// The same for a ValueError.
inline std::string refusal(const std::function<void()>& call) {
  return message_without_lines<ValueError>(call);
}

/// Throws unless `call` throws an E with exactly the `expected` message.
template <typename E>
void refused(const std::string& expected, const std::function<void()>& call) {
  const std::string message = message_without_lines<E>(call);
  expect(message == expected, str("expected: ", expected, "\nbut got:  ", message));
}

}  // namespace lockstep::testing
