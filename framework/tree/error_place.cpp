#include "framework/tree/error_place.h"

#include <cstddef>
#include <new>
#include <stdexcept>
#include <string_view>
#include <system_error>
#include <typeinfo>
#include <vector>

#include <c10/util/Exception.h>

#include "framework/base/errors.h"
#include "framework/base/text.h"

namespace lockstep {
namespace {

// The place that this thread has added last, with its parentheses: further ones join it.
thread_local std::string last_place;

// Returns the message with one more place.
std::string with_place(const std::string& message, const std::string& place) {
  const bool goes_on = !last_place.empty() && message.ends_with(last_place);
  const std::string before = message.substr(0, message.size() - (goes_on ? last_place.size() : 0));
  last_place = goes_on ? str(last_place.substr(0, last_place.size() - 1), "; ", place, ")")
                       : " (" + place + ")";
  return before + last_place;
}

// True if the error's cause is elsewhere, so that a place here would say nothing. A file that can't
// be opened throws a system_error as well, but its cause is here.
bool is_from_elsewhere(const std::exception& error) {
  const auto* const system = dynamic_cast<const std::system_error*>(&error);
  const bool is_out_of_threads =
      system != nullptr && system->code() == std::errc::resource_unavailable_try_again;
  return is_out_of_memory(error) || is_out_of_threads ||
         dynamic_cast<const CommError*>(&error) != nullptr;
}

}  // namespace

std::string form_of(const at::Tensor& tensor) {
  if (!tensor.defined()) return "undefined";
  return str(c10::toString(tensor.scalar_type()), " (", join(tensor.sizes()), ")");
}

std::string forms_of(const std::vector<at::Tensor>& tensors) {
  constexpr std::size_t kMost = 6;
  return listed(mapped(tensors, form_of), kMost);
}

// Makes no stream, since every call of a collective calls this.
std::string place_of(const std::source_location& where) {
  const std::string_view file = where.file_name();
  return std::string(file.substr(file.rfind('/') + 1)) + ':' + std::to_string(where.line());
}

std::string message_text(const std::exception& error) {
  const auto* const of_torch = dynamic_cast<const c10::Error*>(&error);
  if (of_torch == nullptr) return error.what();
  if (of_torch->context().size() < 2) return of_torch->what_without_backtrace();
  return str(of_torch->msg(), " (", join(of_torch->context(), "; "), ")");
}

bool is_out_of_memory(const std::exception& error) {
  return dynamic_cast<const std::bad_alloc*>(&error) != nullptr ||
         (dynamic_cast<const c10::Error*>(&error) != nullptr &&
          message_text(error).find("you tried to allocate ") != std::string::npos);
}

bool is_of_torch(const std::exception& error) {
  return dynamic_cast<const c10::Error*>(&error) != nullptr ||
         typeid(error) == typeid(std::runtime_error);
}

bool is_plain(const Error& error) {
  // A ReplicaError with a nested exception is of a derived class: rethrow_as() keeps the nesting.
  if (error.kind() == ErrorKind::replica) return true;
  if (error.kind() == ErrorKind::mismatch) return false;
  try {
    throw_as(error.kind(), "");
  } catch (const Error& plain) {
    return typeid(error) == typeid(plain);
  }
}

void rethrow_as(const std::exception_ptr& error, const std::string& message) {
  try {
    std::rethrow_exception(error);
  } catch (const ReplicaError& replica) {
    try {
      std::rethrow_if_nested(replica);
    } catch (...) {
      std::throw_with_nested(ReplicaError(message));
    }
    throw ReplicaError(message);
  } catch (const Error& ours) {
    throw_as(ours.kind(), message);
  } catch (...) {
    std::throw_with_nested(ReplicaError(message));
  }
}

void rethrow_at(const std::string& place) {
  if (place.empty()) throw;
  const std::exception_ptr handled = std::current_exception();
  try {
    throw;
  } catch (c10::Error& error) {
    if (!is_from_elsewhere(error)) error.add_context(place);
    throw;
  } catch (const std::exception& error) {
    const auto* const ours = dynamic_cast<const Error*>(&error);
    if (is_from_elsewhere(error) || (ours != nullptr && !is_plain(*ours))) throw;
    rethrow_as(handled, with_place(error.what(), place));
  }
}

}  // namespace lockstep
