#include "framework/training/run_record.h"

#include "framework/base/text.h"
#include "framework/training/uncounted_samples.h"

namespace lockstep::training {
namespace {

thread_local RecordedRun* current_run = nullptr;

constexpr const char* kOtherDraws =
    "a block that is recomputed has drawn more keys, or fewer, than in its first run: its forward "
    "must do the same again";

}  // namespace

RecordedRun::RecordedRun(RunRecord& record, Which which)
    : record_(record),
      which_(which),
      outer_(current_run),
      here_(current_run, this),
      uncounted_(are_samples_uncounted,
                 which == Which::first ? are_samples_uncounted : record.are_samples_uncounted) {
  if (which == Which::first) record_.are_samples_uncounted = are_samples_uncounted;
}

void RecordedRun::check_end() const {
  require<Error>(which_ == Which::first || used_ == record_.keys.size(), kOtherDraws);
}

Key RecordedRun::next_key(const std::function<Key()>& fresh) {
  RecordedRun* const run = current_run;
  if (run == nullptr) return fresh();
  if (run->which_ == Which::first) {
    const ScopedValue outside(current_run, run->outer_);
    return run->record_.keys.emplace_back(next_key(fresh));
  }
  require<Error>(run->used_ < run->record_.keys.size(), kOtherDraws);
  return run->record_.keys[run->used_++];
}

bool RecordedRun::is_here() noexcept {
  return current_run != nullptr;
}

bool RecordedRun::is_repeated() noexcept {
  for (const RecordedRun* run = current_run; run != nullptr; run = run->outer_) {
    if (run->which_ == Which::second) return true;
  }
  return false;
}

}  // namespace lockstep::training
