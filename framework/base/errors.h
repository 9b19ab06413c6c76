#pragma once

#include <cstddef>
#include <stdexcept>
#include <string>

namespace lockstep {

/// Base of every error that Lockstep throws. The message names the operation, the axis, the replica
/// and the numbers. Two families follow: what the caller did wrong (NameError, ValueError,
/// DataError) and how the job failed (CommError and those under it).
class Error : public std::runtime_error {
 public:
  using std::runtime_error::runtime_error;

  /// Name of the error's type as users read it, for example "ValueError".
  [[nodiscard]] virtual const char* type() const noexcept { return "Error"; }

  /// Throws an error of the same type whose message is `prefix` followed by this one's.
  [[noreturn]] virtual void rethrow_with(const std::string& prefix) const {
    throw Error(prefix + what());
  }
};

#define LOCKSTEP_ERROR_TYPE(Name, Base)                                        \
  class Name : public Base {                                                   \
   public:                                                                     \
    using Base::Base;                                                          \
    [[nodiscard]] const char* type() const noexcept override { return #Name; } \
    [[noreturn]] void rethrow_with(const std::string& prefix) const override { \
      throw Name(prefix + what());                                             \
    }                                                                          \
  }

/// An axis name that is not bound where it is used.
LOCKSTEP_ERROR_TYPE(NameError, Error);
/// An argument, option or configuration value that breaks a rule.
LOCKSTEP_ERROR_TYPE(ValueError, Error);
/// An input file that is missing, damaged, cut short or of another format.
LOCKSTEP_ERROR_TYPE(DataError, Error);

/// The job failed: replicas can no longer talk to each other.
LOCKSTEP_ERROR_TYPE(CommError, Error);
/// A replica died or closed its connections while others needed it.
LOCKSTEP_ERROR_TYPE(ReplicaLost, CommError);
/// Replicas are out of step: they called different collectives, or one has returned.
class CollectiveMismatch : public CommError {
 public:
  explicit CollectiveMismatch(const std::string& message, std::size_t prefix = 0)
      : CommError(message), prefix_(prefix) {}
  [[nodiscard]] const char* type() const noexcept override { return "CollectiveMismatch"; }
  [[noreturn]] void rethrow_with(const std::string& prefix) const override {
    throw CollectiveMismatch(prefix + what(), prefix.size() + prefix_);
  }
  /// The message without the prefixes that rethrow_with() added. It is the same on all replicas.
  [[nodiscard]] const char* verdict() const noexcept { return what() + prefix_; }

 private:
  std::size_t prefix_;
};
/// A replica did not arrive in time.
LOCKSTEP_ERROR_TYPE(Timeout, CommError);

/// A replica's function threw something that is not an Error. The original exception is nested:
/// std::rethrow_if_nested gives it back.
LOCKSTEP_ERROR_TYPE(ReplicaError, Error);

/// Thrown in replicas that were blocked in a collective when another replica failed. It is a
/// consequence, never the root cause.
LOCKSTEP_ERROR_TYPE(Aborted, CommError);

/// The status with which a program ends on `error` (and `lockstep::launch` returns): 2 for
/// ValueError and DataError, 3 for CommError, 1 for anything else.
[[nodiscard]] inline int exit_status(const std::exception& error) noexcept {
  if (dynamic_cast<const ValueError*>(&error) != nullptr) return 2;
  if (dynamic_cast<const DataError*>(&error) != nullptr) return 2;
  return dynamic_cast<const CommError*>(&error) != nullptr ? 3 : 1;
}

}  // namespace lockstep
