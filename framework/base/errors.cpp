#include "framework/base/errors.h"

#include <array>

namespace lockstep {
namespace {

template <typename E>
std::exception_ptr make_error(const std::string& message) {
  return std::make_exception_ptr(E(message));
}

// In the order of ErrorKind. A Timeout or CollectiveMismatch has a doubt: the replica that is late
// or at another place may have failed unseen.
constexpr std::array<ErrorTraits, 10> kErrors{{
    {"Error", 1, 0, make_error<Error>},
    {"NameError", 1, 0, make_error<NameError>},
    {"ValueError", 2, 0, make_error<ValueError>},
    {"DataError", 2, 0, make_error<DataError>},
    {"CommError", 3, 2, make_error<CommError>},
    {"ReplicaLost", 3, 3, make_error<ReplicaLost>},
    {"CollectiveMismatch", 3, 1, make_error<CollectiveMismatch>},
    {"Timeout", 3, 1, make_error<Timeout>},
    {"ReplicaError", 1, 0, make_error<ReplicaError>},
    {"Aborted", 3, 3, make_error<Aborted>},
}};

}  // namespace

const ErrorTraits& traits_of(ErrorKind kind) noexcept {
  return kErrors[static_cast<std::size_t>(kind)];
}

void throw_as(ErrorKind kind, const std::string& message) {
  std::rethrow_exception(traits_of(kind).make(message));
}

ErrorKind error_kind(const std::exception& error) noexcept {
  const auto* const ours = dynamic_cast<const Error*>(&error);
  return ours != nullptr ? ours->kind() : ErrorKind::error;
}

ErrorKind error_kind(const std::exception_ptr& error) noexcept {
  try {
    std::rethrow_exception(error);
  } catch (const Error& ours) {
    return ours.kind();
  } catch (...) {
    return ErrorKind::error;
  }
}

}  // namespace lockstep
