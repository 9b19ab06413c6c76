#include "framework/groups/replica_group.h"

#include <chrono>
#include <utility>

#include "framework/base/cores.h"
#include "framework/base/random.h"
#include "framework/base/waited.h"
#include "framework/comm/shared/shared_communicator.h"

namespace lockstep::groups {
namespace {

using std::chrono::milliseconds;

// When connections end, the call table may need this long to say why; kHostsAftermath is for jobs
// in which host 0 has to read the call tables of all hosts. After the end of a process, the call
// table knows why already, and may only be busy (kBusy).
constexpr milliseconds kAftermath{40};
constexpr milliseconds kHostsAftermath{600};
constexpr milliseconds kBusy{6};
constexpr milliseconds kMoment{2};
constexpr std::chrono::microseconds kLooking{100};  // as replicas in shared memory do

// Throws the error with which a member's wait must end, if `replicas` finds one within `patience`.
void explain(const LocalReplicas& replicas, const Member& member, Waited waited,
             milliseconds patience) {
  Waited asked;
  do {
    if (const auto error = replicas.end_of_wait(member, waited)) std::rethrow_exception(error);
    std::this_thread::sleep_for(kMoment);
  } while (asked.look() < patience);
}

}  // namespace

LocalGroup::LocalGroup(LocalReplicas& replicas, std::uint64_t key,
                       std::vector<calls::GroupMember> members)
    : replicas_(replicas),
      key_(key),
      members_(std::move(members)),
      layout_(members_, replicas.worker()),
      together_(layout_, layout_.workers() == 1
                             ? nullptr
                             : replicas.world()->subgroup(layout_.worker_numbers(), key)),
      call_group_(replicas.call_table().group(replicas.worker(), key, members_)),
      verbs_(layout_.own_places().size()),
      waiting_(verbs_.size()) {
  static const auto cores = static_cast<std::size_t>(usable_cores());
  if (verbs_.size() <= cores) patience_.yielding = kLooking;
}

std::shared_ptr<LocalGroup> LocalGroup::subgroup(std::span<const int> members,
                                                 std::uint64_t channel) {
  const Key key = Key(key_).fold("subgroup").fold(channel).fold(members);
  return replicas_.group(key.bits(), [&] { return items_at(members_, members); });
}

void LocalGroup::meet(const Member& member, int place, std::uint64_t mark, const comm::Verb& verb) {
  const std::size_t index = layout_.index_of(place);
  replicas_.check_process();
  member.cancellation->check();
  MutexLock lock(mutex_);
  if (error_) std::rethrow_exception(error_);
  if (verbs_.size() == 1) {
    lock.unlock();
    return run_alone(member, mark, verb);
  }
  const bool first = arrived_ == 0;
  if (first) mark_ = mark;
  if (mark != mark_) {
    lock.unlock();
    fall_out(member);
  }
  verbs_[index] = &verb;
  if (++arrived_ < verbs_.size()) {
    waiting_[index] = {comm::current_run_lock(), std::this_thread::get_id()};
    const std::uint64_t generation = generation_;
    lock.unlock();
    return wait_for_others(member, index, generation, first);
  }
  run_last(member, index);
  lock.unlock();
  const comm::RunLockRelease others_may_run;
}

// Runs the verb of the only member here.
void LocalGroup::run_alone(const Member& member, std::uint64_t mark, const comm::Verb& verb) {
  const comm::Verb* const only = &verb;
  if (const auto error = thrown_by([&] { run_outside(member, mark, {&only, 1}); })) {
    const MutexLock lock(mutex_);
    fail(error);
    std::rethrow_exception(error);
  }
}

// The last member to arrive does the work of all, with the mutex not held. If there is much work,
// and no other worker is needed for it, waiting members help.
void LocalGroup::run_last(const Member& member, std::size_t index) {
  const std::uint64_t mark = mark_;
  working_ = true;
  std::shared_ptr<comm::LocalWork> work;
  std::exception_ptr error = thrown_by([&] {
    if (workers() == nullptr) work = comm::LocalWork::of(verbs_);
  });
  work_ = work;
  if (work_) {
    tell_change();
    help();
    while (helpers_ > 0) wait_for_change(LocalReplicas::kLookAround);
    error = error_;
  } else if (!error) {
    mutex_.unlock();
    error = thrown_by([&] { run_outside(member, mark, verbs_); });
    mutex_.lock();
  }
  work_ = nullptr;
  working_ = false;
  arrived_ = 0;
  ++generation_;
  if (error) {
    fail(error);
    std::rethrow_exception(error);
  }
  waiting_[index] = {comm::current_run_lock(), std::this_thread::get_id()};
  wake_waiting();
}

// Runs the verbs with other workers, and lets the wait for them be watched meanwhile.
void LocalGroup::run_outside(const Member& member, std::uint64_t mark,
                             comm::Together::Verbs verbs) {
  if (workers() == nullptr) return together_.run(verbs);
  const comm::RunLockRelease others_may_run;
  const LocalReplicas::Guarded guarded(replicas_, member, *workers());
  // Throws why the others do not meet, if the call table knows or gets to know in a moment.
  const auto explain_end = [&] {
    const bool asks = replicas_.call_table().spans_hosts();
    replicas_.call_table().want_readings();
    explain(replicas_, member, guarded.waited(), asks ? kHostsAftermath : kAftermath);
  };
  // The other replicas of this call have left it: nothing may be sent to them any more.
  if (replicas_.call_table().published(*member.slot)) explain_end();
  try {
    workers()->mark(mark);
    // If each worker has one member, the members' group is that of the workers.
    if (layout_.workers() == layout_.size()) return workers()->run(*verbs[0]);
    together_.run(verbs);
  } catch (const comm::ProcessEnded&) {
    explain(replicas_, member, guarded.waited(), kBusy);
    throw;
  } catch (const CommError& error) {
    const ErrorKind kind = error.kind();
    if (kind != ErrorKind::comm && kind != ErrorKind::timeout) explain_end();
    throw;
  }
}

// Throws, when another replica here has called something else, once the call table knows all calls.
void LocalGroup::fall_out(const Member& member) {
  Waited waited;
  const comm::RunLockRelease others_may_run;
  MutexLock lock(mutex_);
  tell_change();
  while (!error_) {
    lock.unlock();
    const auto error = replicas_.end_of_wait(member, waited);
    lock.lock();
    if (error) fail(error);
    if (!error_) wait_for_change(kMoment);
  }
  std::rethrow_exception(error_);
}

// Returns once something has changed here, or after `longest`. Small verbs end sooner than a thread
// falls asleep and wakes: where each member here has a core, it looks for a while first.
void LocalGroup::wait_for_change(std::chrono::nanoseconds longest) noexcept {
  const std::uint32_t next = changes_ + 1;
  mutex_.unlock();
  (void)changed_.wait(next, patience_, longest);
  mutex_.lock();
}

// Helps with the work, and returns when no part of it is left to begin.
void LocalGroup::help() {
  const std::shared_ptr<comm::LocalWork> work = work_;
  ++helpers_;
  mutex_.unlock();
  const auto error = thrown_by([&] { work->help(); });
  mutex_.lock();
  if (error) fail(error);
  --helpers_;
  tell_change();
}

// Waits, for the member with this index, until the others have come and the verb is done. One of
// the waiting members looks around for all.
void LocalGroup::wait_for_others(const Member& member, std::size_t index, std::uint64_t generation,
                                 bool looks_around) {
  Waited waited;
  comm::RunLock* const run_lock = comm::current_run_lock();
  const auto limit = looks_around ? LocalReplicas::kLookAround : comm::RunLock::kForever;
  const comm::RunLockRelease others_may_run;
  MutexLock lock(mutex_);
  // Members with a run lock run one at a time, so they don't help.
  bool may_help = member.run_lock == nullptr;
  bool has_turn = false;
  // Work under way uses this replica's buffers: an error or a cancellation waits for its end.
  while (generation_ == generation &&
         (working_ || !(error_ || member.cancellation->is_cancelled()))) {
    if (may_help && work_) {
      may_help = false;
      help();
      continue;
    }
    if (run_lock == nullptr) {
      wait_for_change(limit);
    } else if (has_turn) {
      // The thread had its turn for nothing. It gives the turn back before it stands in line again,
      // or it could give back the turn that it waits for.
      lock.unlock();
      run_lock->give();
      has_turn = false;
      lock.lock();
      continue;
    } else {
      waiting_[index] = {run_lock, std::this_thread::get_id()};
      lock.unlock();
      has_turn = run_lock->wait_for_turn(limit);
      lock.lock();
    }
    if (!looks_around || working_ || error_ || generation_ != generation) continue;
    lock.unlock();
    const auto error = replicas_.end_of_wait(member, waited);
    lock.lock();
    if (error && !working_ && generation_ == generation) fail(error);
  }
  waiting_[index] = {};
  if (generation_ != generation && !error_) return;
  if (!error_) fail(member.cancellation->reason());
  std::rethrow_exception(error_);
}

// Wakes the waiting members. Members with a run lock go on one after the other, in the order of
// their places, in which their next calls may be cheaper.
void LocalGroup::wake_waiting() {
  tell_change();
  for (Waiting& each : waiting_) {
    if (each.run_lock != nullptr) each.run_lock->line_up(each.thread);
    each = {};
  }
}

void LocalGroup::fail(const std::exception_ptr& error) {
  if (!error_) error_ = error;
  wake_waiting();
}

void LocalGroup::wake() {
  const MutexLock lock(mutex_);
  wake_waiting();
}

void LocalGroup::interrupt(const std::exception_ptr& error) noexcept {
  const MutexLock lock(mutex_);
  if (workers() != nullptr) workers()->interrupt(error);
  fail(error);
}

ReplicaGroup::ReplicaGroup(std::shared_ptr<LocalGroup> local, const Member& member, int place)
    : Communicator(place, static_cast<int>(local->layout().size())),
      local_(std::move(local)),
      member_(member) {}

void ReplicaGroup::begin(const calls::CallRecord& call) {
  local_->replicas().check_process();
  mark(call.fingerprint);
  // A cancelled replica leaves its last call in the call table: others may still look at it.
  if (!member_.cancellation->is_cancelled())
    member_.slot->start(local_->call_group(), rank(), call);
}

}  // namespace lockstep::groups
