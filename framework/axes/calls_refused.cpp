#include "framework/axes/calls_refused.h"

#include "framework/base/errors.h"
#include "framework/base/text.h"

namespace lockstep {
namespace {
thread_local const char* this_thread_refusal = nullptr;
}  // namespace

CallsRefused::CallsRefused(const char* reason) noexcept
    : ScopedValue(this_thread_refusal, reason) {}

const char* refusal_of_calls() noexcept {
  return this_thread_refusal;
}

void throw_refused(const std::string& call) {
  throw Error(str(call, ": ", this_thread_refusal));
}

}  // namespace lockstep
