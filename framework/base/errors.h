#pragma once

#include <cstddef>
#include <exception>
#include <stdexcept>
#include <string>

namespace lockstep {

/// The types of the errors below, for passing an error on to another thread, process or host.
enum class ErrorKind { error, name, value, data, comm, lost, mismatch, timeout, replica, aborted };

struct ErrorTraits {
  const char* name;  ///< the type's, as users read it: "ValueError"
  int exit_status;   ///< of a program that ends on such an error
  /// The likelihood that the error only follows another replica's failure: 0 is never, larger
  /// numbers are more likely. The first failure with the lowest number is the root cause of all.
  int doubt;
  std::exception_ptr (*make)(const std::string& message);
};
[[nodiscard]] const ErrorTraits& traits_of(ErrorKind kind) noexcept;
[[noreturn]] void throw_as(ErrorKind kind, const std::string& message);

/// Base of every error that Lockstep throws. The message names the operation, the axis, the replica
/// and the numbers. Two families follow: mistakes of the caller (NameError, ValueError, DataError)
/// and failures of the job (CommError and its subclasses).
class Error : public std::runtime_error {
 public:
  using std::runtime_error::runtime_error;

  /// Returns the type of this file that the error has or derives from.
  [[nodiscard]] virtual ErrorKind kind() const noexcept { return ErrorKind::error; }
  /// Returns the name of the error's type as users read it, for example "ValueError".
  [[nodiscard]] virtual const char* type() const noexcept { return traits_of(kind()).name; }

  /// Throws an error of the same type whose message is `prefix` followed by this one's.
  [[noreturn]] virtual void rethrow_with(const std::string& prefix) const {
    throw_as(kind(), prefix + what());
  }
};

#define LOCKSTEP_ERROR_TYPE(Name, Base, its_kind)                               \
  class Name : public Base {                                                    \
   public:                                                                      \
    using Base::Base;                                                           \
    [[nodiscard]] ErrorKind kind() const noexcept override { return its_kind; } \
  }

/// An axis name that is not bound where it is used.
LOCKSTEP_ERROR_TYPE(NameError, Error, ErrorKind::name);
/// An argument, option or configuration value that breaks a rule.
LOCKSTEP_ERROR_TYPE(ValueError, Error, ErrorKind::value);
/// An input file that is missing, damaged, cut short or of another format.
LOCKSTEP_ERROR_TYPE(DataError, Error, ErrorKind::data);

/// The job failed: replicas can no longer talk to each other.
LOCKSTEP_ERROR_TYPE(CommError, Error, ErrorKind::comm);
/// A replica died or closed its connections while others needed it.
LOCKSTEP_ERROR_TYPE(ReplicaLost, CommError, ErrorKind::lost);
/// Replicas are out of step: they called different collectives, or one has returned.
class CollectiveMismatch : public CommError {
 public:
  explicit CollectiveMismatch(const std::string& message, std::size_t prefix = 0)
      : CommError(message), prefix_(prefix) {}
  [[nodiscard]] ErrorKind kind() const noexcept override { return ErrorKind::mismatch; }
  [[noreturn]] void rethrow_with(const std::string& prefix) const override {
    throw CollectiveMismatch(prefix + what(), prefix.size() + prefix_);
  }
  /// Returns the message without rethrow_with()'s prefixes: it is the same on all replicas.
  [[nodiscard]] const char* verdict() const noexcept { return what() + prefix_; }

 private:
  std::size_t prefix_;
};
/// A replica did not arrive in time.
LOCKSTEP_ERROR_TYPE(Timeout, CommError, ErrorKind::timeout);

/// A replica's function threw something that is not an Error. The original exception is nested:
/// std::rethrow_if_nested gives it back.
LOCKSTEP_ERROR_TYPE(ReplicaError, Error, ErrorKind::replica);

/// Thrown in replicas that were blocked in a collective when another replica failed. It is a
/// consequence, never the root cause.
LOCKSTEP_ERROR_TYPE(Aborted, CommError, ErrorKind::aborted);

/// Returns an exception's kind; ErrorKind::error for an exception that is no Error.
[[nodiscard]] ErrorKind error_kind(const std::exception& error) noexcept;
[[nodiscard]] ErrorKind error_kind(const std::exception_ptr& error) noexcept;

/// Returns the exception that `task` throws; nullptr if it throws nothing.
[[nodiscard]] std::exception_ptr thrown_by(const auto& task) {
  try {
    task();
    return nullptr;
  } catch (...) {
    return std::current_exception();
  }
}

/// Returns the status with which a program ends on `error`, and which `lockstep::launch` returns: 2
/// for ValueError and DataError, 3 for CommError, 1 for anything else.
[[nodiscard]] inline int exit_status(const std::exception& error) noexcept {
  return traits_of(error_kind(error)).exit_status;
}

}  // namespace lockstep
