#include "framework/replicas/job.h"

namespace lockstep {
namespace {
thread_local bool this_thread_in_job = false;
}  // namespace

bool in_job() noexcept {
  return this_thread_in_job;
}

JobScope::JobScope() noexcept {
  this_thread_in_job = true;
}

JobScope::~JobScope() {
  this_thread_in_job = false;
}

}  // namespace lockstep
