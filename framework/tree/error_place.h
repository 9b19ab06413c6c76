#pragma once

#include <exception>
#include <source_location>
#include <string>
#include <vector>

#include <ATen/core/Tensor.h>

#include "framework/base/errors.h"

namespace lockstep {

/// Returns a tensor's dtype and shape, for messages: "Float (32, 10)"; "undefined" without one.
[[nodiscard]] std::string form_of(const at::Tensor& tensor);
/// Returns the forms of several tensors, the first of them if there are many.
[[nodiscard]] std::string forms_of(const std::vector<at::Tensor>& tensors);

/// Returns "model.cpp:41", for example.
[[nodiscard]] std::string place_of(const std::source_location& where);

/// Returns an exception's message on one line with its places, without LibTorch's backtrace.
[[nodiscard]] std::string message_text(const std::exception& error);
/// True if an exception says that memory ran out. Such an exception needs no place.
[[nodiscard]] bool is_out_of_memory(const std::exception& error);
/// True if an Error has only its kind and message: its class has no further members.
[[nodiscard]] bool is_plain(const Error& error);

/// Throws `error` again with another message. A plain Error keeps its kind. An exception that is
/// nested in a ReplicaError stays so, and any other exception is nested in one.
[[noreturn]] void rethrow_as(const std::exception_ptr& error, const std::string& message);

/// Throws the exception that is being handled again, with `place` in parentheses after its message,
/// and after places that it has: "… (in 'fc1'; step 3)". A plain Error keeps its kind and a
/// c10::Error its type; any other exception is nested in a ReplicaError. Some stay as they are: all
/// if there is no place, Errors that are not plain, CommErrors, whose cause is elsewhere, and
/// exceptions that say that memory or threads ran out.
[[noreturn]] void rethrow_at(const std::string& place);

/// Calls task(). An exception gains the place that place() returns; place() runs only then.
template <typename Place, typename Task>
decltype(auto) placed(const Place& place, const Task& task) {
  try {
    return task();
  } catch (...) {
    rethrow_at(place());
  }
}
/// The same only for exceptions that are no Errors: an Error's message names its cause already.
template <typename Place, typename Task>
decltype(auto) foreign_placed(const Place& place, const Task& task) {
  try {
    return task();
  } catch (const Error&) {
    throw;
  } catch (...) {
    rethrow_at(place());
  }
}

/// True if the exception is LibTorch's: a c10::Error, or the std::runtime_error that a backward
/// makes of one.
[[nodiscard]] bool is_of_torch(const std::exception& error);
/// The same only for LibTorch's exceptions.
template <typename Place, typename Task>
decltype(auto) torch_placed(const Place& place, const Task& task) {
  try {
    return task();
  } catch (const std::exception& error) {
    if (is_of_torch(error)) rethrow_at(place());
    throw;
  }
}

}  // namespace lockstep
