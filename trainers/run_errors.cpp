#include "trainers/run_errors.h"

#include "framework/base/errors.h"
#include "framework/base/logging.h"
#include "framework/base/text.h"
#include "framework/replicas/first_failure.h"
#include "framework/storage/checkpoint_folder.h"
#include "trainers/resume.h"

namespace lockstep {
namespace {

bool is_of_data(const std::exception_ptr& error) {
  try {
    std::rethrow_exception(error);
  } catch (const DataError&) {
    return true;
  } catch (...) {
    return false;
  }
}

}  // namespace

bool lacks_replica(const std::exception_ptr& error) {
  try {
    std::rethrow_exception(error);
  } catch (const Aborted&) {
    return false;  // it may only have thrown
  } catch (const CollectiveMismatch&) {
    return false;
  } catch (const CommError&) {
    return true;
  } catch (...) {
    return false;
  }
}

std::string typed_text(const std::exception_ptr& error) {
  try {
    std::rethrow_exception(error);
  } catch (const Error& ours) {
    return str(ours.type(), ": ", replicas::text_of(error));
  } catch (...) {
    return replicas::text_of(error);
  }
}

std::string how_to_go_on(const std::exception_ptr& error, const std::filesystem::path& output) {
  // Mended data are others than those that the checkpoint has recorded.
  const bool are_mended = is_of_data(error);
  return str(are_mended ? "once the data are mended, " : "", "--output ", output.string(),
             " --resume auto ", are_mended ? "--resume-with-changes " : "", "goes on");
}

std::string what_is_left(const std::filesystem::path& output) {
  const auto steps = storage::CheckpointFolder(checkpoints_of(output)).steps();
  if (steps.empty()) return "there is no checkpoint";
  return str("--output ", output.string(), " --resume auto goes on after step ", steps.front());
}

void rethrow_with(const std::string& note, bool logs) {
  if (note.empty()) throw;
  const std::exception_ptr handled = std::current_exception();
  try {
    throw;
  } catch (const Aborted&) {
    throw;  // another replica's error is the cause
  } catch (const Error& error) {
    const std::string text = str(error.what(), "\n", note);
    const std::string type = error.type();
    if (type == "DataError") throw DataError(text);
    if (type == "ValueError") throw ValueError(text);
    if (type == "NameError") throw NameError(text);
    if (type == "Error") throw Error(text);
    if (type == "Timeout") throw Timeout(text);
    if (type == "ReplicaLost") throw ReplicaLost(text);
    if (type == "CommError") throw CommError(text);
    if (logs) log_warning(note);
    throw;
  } catch (...) {
    std::throw_with_nested(ReplicaError(str(replicas::text_of(handled), "\n", note)));
  }
}

}  // namespace lockstep
