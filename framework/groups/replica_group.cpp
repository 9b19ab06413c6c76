#include "framework/groups/replica_group.h"

#include <chrono>
#include <utility>

#include "framework/base/errors.h"
#include "framework/base/random.h"
#include "framework/base/waited.h"
#include "framework/comm/shared/shared_communicator.h"

namespace lockstep::groups {
namespace {

using std::chrono::milliseconds;

// When connections end, how long the board may need to say why, also where host 0 has to read those
// of all hosts. It knows already what a process that has ended had to say, and may only be busy.
constexpr milliseconds kAftermath{40};
constexpr milliseconds kHostsAftermath{600};
constexpr milliseconds kBusy{6};
constexpr milliseconds kMoment{2};

// Throws what `replicas` has to say of a member's wait, if it does so within `patience`.
void explain(const LocalReplicas& replicas, const Member& member, Waited waited,
             milliseconds patience) {
  Waited asked;
  do {
    if (const auto error = replicas.verdict(member, waited)) std::rethrow_exception(error);
    std::this_thread::sleep_for(kMoment);
  } while (asked.look() < patience);
}

// The Communicator that joins the workers of the group's members; nullptr if there is one worker.
std::shared_ptr<comm::Communicator> outer_of(const LocalReplicas& replicas, std::uint64_t key,
                                             std::span<const watch::GroupMember> members) {
  const comm::GroupLayout layout(members, replicas.worker());
  return layout.workers() > 1 ? replicas.world()->subgroup(layout.worker_numbers(), key) : nullptr;
}

}  // namespace

LocalGroup::LocalGroup(LocalReplicas& replicas, std::uint64_t key,
                       std::vector<watch::GroupMember> members)
    : LocalMembers(comm::GroupLayout(members, replicas.worker()), outer_of(replicas, key, members)),
      replicas_(replicas),
      key_(key),
      members_(std::move(members)),
      board_group_(replicas.board().group(replicas.worker(), key, members_)),
      own_members_(layout().own_places().size()),
      verbs_(own_members_.size()),
      waiting_(own_members_.size()) {}

void LocalGroup::join(int place, const Member& member) {
  own_members_[layout().index_of(place)] = &member;
}

std::shared_ptr<comm::LocalMembers> LocalGroup::subgroup(std::span<const int> members, int place,
                                                         std::uint64_t channel) {
  Key key = Key(key_).fold("subgroup").fold(channel);
  for (const int member : members) key = key.fold(static_cast<std::uint64_t>(member));
  auto group = replicas_.group(key.bits(), [&] {
    std::vector<watch::GroupMember> chosen;
    for (const int member : members) chosen.push_back(members_[static_cast<std::size_t>(member)]);
    return chosen;
  });
  const int own = members[static_cast<std::size_t>(place)];
  group->join(place, *own_members_[layout().index_of(own)]);
  return group;
}

void LocalGroup::meet(int place, std::uint64_t mark, const comm::Verb& verb) {
  const std::size_t index = layout().index_of(place);
  const Member& member = *own_members_[index];
  replicas_.check_process();
  member.cancellation->check();
  std::unique_lock lock(mutex_);
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
  waiting_[index] = {comm::current_run_lock(), std::this_thread::get_id()};
  if (++arrived_ < verbs_.size()) {
    const std::uint64_t generation = generation_;
    lock.unlock();
    return wait_for_others(member, generation, first);
  }
  run_last(lock, member);
  if (comm::current_run_lock() == nullptr) return;
  // The members go on in the order of their places, in which what follows may be cheaper.
  for (const Waiting& each : waiting_) {
    if (each.run_lock != nullptr) each.run_lock->line_up(each.thread);
  }
  lock.unlock();
  const comm::RunLockRelease others_may_run;
}

// No other member is here to meet.
void LocalGroup::run_alone(const Member& member, std::uint64_t mark, const comm::Verb& verb) {
  const comm::Verb* const only = &verb;
  try {
    run_outside(member, mark, {&only, 1});
  } catch (...) {
    const std::lock_guard lock(mutex_);
    fail(std::current_exception());
    throw;
  }
}

// The last to arrive does the work of all, with mutex_ not held. Where that is much, and nobody
// else is needed for it, those who wait help.
void LocalGroup::run_last(std::unique_lock<std::mutex>& lock, const Member& member) {
  working_ = true;
  std::exception_ptr error;
  try {
    const std::uint64_t mark = mark_;
    if (outer() == nullptr) work_ = comm::LocalWork::of(verbs_);
    if (work_) {
      changed_.notify_all();
      help(lock);
      changed_.wait(lock, [&] { return helpers_ == 0; });
    } else {
      lock.unlock();
      run_outside(member, mark, verbs_);
    }
  } catch (...) {
    error = std::current_exception();
  }
  if (!lock.owns_lock()) lock.lock();
  work_ = nullptr;
  working_ = false;
  arrived_ = 0;
  ++generation_;
  if (error) {
    fail(error);
    std::rethrow_exception(error);
  }
  changed_.notify_all();
}

// Does the verb, and lets the wait for other workers be watched meanwhile.
void LocalGroup::run_outside(const Member& member, std::uint64_t mark,
                             std::span<const comm::Verb* const> verbs) {
  if (outer() == nullptr) return run_all(mark, verbs);
  const comm::RunLockRelease others_may_run;
  const LocalReplicas::Guarded guarded(replicas_, member, *outer());
  // The others do not meet: throws why, if the board knows or gets to know in a moment.
  const auto explain_end = [&] {
    const bool asks = replicas_.board().spans_hosts();
    replicas_.board().want_readings();
    explain(replicas_, member, guarded.waited(), asks ? kHostsAftermath : kAftermath);
  };
  // The other replicas of this call have left it: nothing must be sent to them any more.
  if (replicas_.board().published(*member.seat)) explain_end();
  try {
    run_all(mark, verbs);
  } catch (const comm::ProcessEnded&) {
    explain(replicas_, member, guarded.waited(), kBusy);
    throw;
  } catch (const CommError& error) {
    const ErrorKind kind = error.kind();
    if (kind != ErrorKind::comm && kind != ErrorKind::timeout) explain_end();
    throw;
  }
}

// Another replica here has called something else. Throws once the board knows each one's call.
void LocalGroup::fall_out(const Member& member) {
  Waited waited;
  const comm::RunLockRelease others_may_run;
  std::unique_lock lock(mutex_);
  changed_.notify_all();
  while (!error_) {
    lock.unlock();
    const auto error = replicas_.verdict(member, waited);
    lock.lock();
    if (error) fail(error);
    if (!error_) changed_.wait_for(lock, kMoment);
  }
  std::rethrow_exception(error_);
}

// Returns when there is nothing left to be begun of the work.
void LocalGroup::help(std::unique_lock<std::mutex>& lock) {
  const std::shared_ptr<comm::LocalWork> work = work_;
  ++helpers_;
  lock.unlock();
  work->help();
  lock.lock();
  --helpers_;
  changed_.notify_all();
}

void LocalGroup::wait_for_others(const Member& member, std::uint64_t generation, bool first) {
  Waited waited;
  const comm::RunLockRelease others_may_run;
  std::unique_lock lock(mutex_);
  // Of members with a run lock only one may run.
  bool may_help = member.run_lock == nullptr;
  const auto over = [&] {
    // While the work is under way it uses this replica's buffers: whatever ends it waits for that.
    return generation_ != generation || (may_help && work_) ||
           (!working_ && (error_ || member.cancellation->is_cancelled()));
  };
  // One of those who wait looks around for all.
  for (;;) {
    if (first ? changed_.wait_for(lock, LocalReplicas::kLookAround, over)
              : (changed_.wait(lock, over), true)) {
      if (generation_ != generation || !may_help || !work_) break;
      may_help = false;
      help(lock);
      continue;
    }
    if (working_ || error_) continue;
    lock.unlock();
    const auto error = replicas_.verdict(member, waited);
    lock.lock();
    if (error && !working_ && generation_ == generation) fail(error);
  }
  if (generation_ != generation && !error_) return;
  if (!error_) {
    try {
      member.cancellation->check();
    } catch (...) {
      fail(std::current_exception());
    }
  }
  std::rethrow_exception(error_);
}

void LocalGroup::fail(const std::exception_ptr& error) {
  if (!error_) error_ = error;
  changed_.notify_all();
}

void LocalGroup::wake() {
  const std::lock_guard lock(mutex_);
  changed_.notify_all();
}

void LocalGroup::interrupt(const std::exception_ptr& error) noexcept {
  const std::lock_guard lock(mutex_);
  if (outer() != nullptr) outer()->interrupt(error);
  fail(error);
}

ReplicaGroup::ReplicaGroup(const std::shared_ptr<LocalGroup>& local, const Member& member,
                           int place)
    : Hierarchy(local, place), group_(*local), member_(member) {
  group_.join(place, member);
}

void ReplicaGroup::begin(const watch::CallRecord& call) {
  group_.replicas().check_process();
  mark(call.fingerprint);
  // A cancelled replica leaves its last call on the board: others may still look at it.
  if (!member_.cancellation->is_cancelled())
    member_.seat->start(group_.board_group(), rank(), call);
}

}  // namespace lockstep::groups
