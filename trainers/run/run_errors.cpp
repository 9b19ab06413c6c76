#include "trainers/run/run_errors.h"

#include <string_view>

#include "framework/base/errors.h"
#include "framework/base/logging.h"
#include "framework/base/text.h"
#include "framework/replicas/first_failure.h"

namespace lockstep {

bool lacks_replica(const std::exception_ptr& error) {
  // Aborted: it may only have thrown.
  const ErrorKind kind = error_kind(error);
  return kind == ErrorKind::comm || kind == ErrorKind::lost || kind == ErrorKind::timeout;
}

void rethrow_with(const std::string& note, bool logs) {
  if (note.empty()) throw;
  const std::exception_ptr handled = std::current_exception();
  try {
    throw;
  } catch (const Error& error) {
    const ErrorKind kind = error.kind();
    if (kind == ErrorKind::aborted) throw;  // another replica's error is the cause
    // A verdict, a nested exception, or what a type of its own has.
    const bool has_more = kind == ErrorKind::mismatch || kind == ErrorKind::replica ||
                          std::string_view(error.type()) != traits_of(kind).name;
    if (!has_more) throw_as(kind, str(error.what(), "\n", note));
    if (logs) log_warning(note);
    throw;
  } catch (...) {
    std::throw_with_nested(ReplicaError(str(replicas::text_of(handled), "\n", note)));
  }
}

}  // namespace lockstep
