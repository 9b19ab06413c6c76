#include "framework/maps/first_failure.h"

#include <cstddef>
#include <cstdlib>
#include <new>
#include <string_view>
#include <system_error>

#include <c10/util/Exception.h>

#include "framework/base/errors.h"
#include "framework/base/limits.h"
#include "framework/base/memory.h"
#include "framework/base/text.h"
#include "framework/tree/error_place.h"

namespace lockstep::maps {

std::string text_of(const std::exception& error) {
  if (dynamic_cast<const std::bad_alloc*>(&error) != nullptr) {
    return "out of memory: " + memory_numbers();
  }
  const auto* const system = dynamic_cast<const std::system_error*>(&error);
  if (system != nullptr && system->code() == std::errc::resource_unavailable_try_again) {
    return str("a thread can't be started: ", text_of_errno(system->code().value()),
               thread_limit_text());
  }
  const std::string text = message_text(error);
  // LibTorch says: "[enforce fail at alloc_cpu.cpp:66] . DefaultCPUAllocator: can't allocate
  // memory: you tried to allocate 80 bytes. Error code 12 (Cannot allocate memory)".
  if (is_out_of_memory(error)) {
    const std::size_t tried = text.find("you tried to allocate ");
    const std::string size = text.substr(tried + 22, text.find('.', tried) - tried - 22);
    return str("out of memory: LibTorch tried to allocate ", size, "; ", memory_numbers());
  }
  // As in PyTorch, this variable asks for the stack where LibTorch threw, too.
  const char* const shows_stack = std::getenv("TORCH_SHOW_CPP_STACKTRACES");
  if (shows_stack != nullptr && shows_stack == std::string_view("1")) return error.what();
  return shortened(text, std::size_t{16} << 10);
}

std::string text_of(const std::exception_ptr& error) {
  try {
    std::rethrow_exception(error);
  } catch (const std::exception& known) {
    return text_of(known);
  } catch (...) {
    return "an exception that is no std::exception";
  }
}

std::string typed_text(const std::exception_ptr& error) {
  try {
    std::rethrow_exception(error);
  } catch (const Error& ours) {
    return lockstep::str(ours.type(), ": ", text_of(ours));
  } catch (...) {
    return text_of(error);
  }
}

void FirstFailure::record(std::int64_t index, const std::exception_ptr& error) noexcept {
  const int doubt = traits_of(error_kind(error)).doubt;
  {
    const MutexLock lock(mutex_);
    const bool first = !cause_;
    if (!first && doubt >= cause_->doubt) return;
    cause_ = {first_ + index, error, doubt};
    if (!first) return;
  }
  end_others_(lockstep::str("replica ", first_ + index, " failed: ", text_of(error)));
}

std::optional<FirstFailure::Cause> FirstFailure::cause() const {
  const MutexLock lock(mutex_);
  return cause_;
}

void FirstFailure::rethrow() const {
  const auto failed = cause();
  if (!failed) return;
  const std::string name = lockstep::str("replica ", failed->replica, of_, ": ");
  // The error of a map in this replica may begin with the name already.
  const std::string prefix = text_of(failed->error).starts_with(name) ? "" : name;
  try {
    std::rethrow_exception(failed->error);
  } catch (const ReplicaError& error) {
    rethrow_as(failed->error, prefix + error.what());  // keeps the nested exception
  } catch (const Error& error) {
    error.rethrow_with(prefix);
  } catch (...) {
    std::throw_with_nested(ReplicaError(prefix + text_of(failed->error)));
  }
}

void add_threads(std::vector<std::thread>& threads, std::int64_t count, FirstFailure& failure,
                 const std::function<void(std::int64_t)>& body, std::int64_t first) {
  for (auto index = static_cast<std::int64_t>(threads.size()); index < count; ++index) {
    try {
      threads.emplace_back(body, first + index);
    } catch (const std::system_error& error) {
      failure.record(first + index, std::make_exception_ptr(Error(lockstep::str(
                                        "one of ", count, " threads cannot be started: ",
                                        error.what(), thread_limit_text()))));
      return;
    }
  }
}

}  // namespace lockstep::maps
