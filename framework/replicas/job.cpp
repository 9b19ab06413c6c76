#include "framework/replicas/job.h"

namespace lockstep {
namespace {
thread_local Job* this_thread_job = nullptr;
}  // namespace

Job* current_job() noexcept {
  return this_thread_job;
}

JobScope::JobScope(Job* job) noexcept {
  this_thread_job = job;
}

JobScope::~JobScope() {
  this_thread_job = nullptr;
}

}  // namespace lockstep
