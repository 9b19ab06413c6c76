#pragma once

#include <exception>
#include <string>

namespace lockstep::testing {

/// The message of the E that `call` throws; what else it throws, or that it throws nothing, is a
/// text that no message of ours is.
template <typename E, typename Call>
std::string message_of(const Call& call) {
  try {
    call();
  } catch (const E& error) {
    return error.what();
  } catch (const std::exception& error) {
    return std::string("an error of another type: ") + error.what();
  }
  return "no error";
}

}  // namespace lockstep::testing
