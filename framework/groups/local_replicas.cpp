#include "framework/groups/local_replicas.h"

#include <utility>

#include "framework/base/errors.h"
#include "framework/base/text.h"
#include "framework/groups/replica_group.h"

namespace lockstep::groups {
namespace {

using std::chrono::milliseconds;

// A mismatch waits this long, from the begin of a replica's wait, for others that may yet be part
// of the mismatch, so that its report names all sides.
constexpr milliseconds kGather{300};
// The same if host 0's launcher knows more of all sides, unless it stands still.
constexpr milliseconds kHostsGather{2000};

}  // namespace

LocalReplicas::LocalReplicas(int worker, std::shared_ptr<comm::Communicator> world,
                             std::shared_ptr<calls::CallTable> table)
    : worker_(worker), world_(std::move(world)), table_(std::move(table)) {}

std::shared_ptr<LocalGroup> LocalReplicas::group(
    std::uint64_t key, const std::function<std::vector<calls::GroupMember>()>& members) {
  const MutexLock lock(mutex_);
  if (auto known = groups_[key].lock()) return known;
  std::erase_if(groups_, [](const auto& entry) { return entry.second.expired(); });
  auto made = std::make_shared<LocalGroup>(*this, key, members());
  groups_[key] = made;
  return made;
}

void LocalReplicas::wake_all() {
  std::vector<std::shared_ptr<LocalGroup>> all;
  {
    const MutexLock lock(mutex_);
    for (const auto& [key, group] : groups_) {
      if (auto alive = group.lock()) all.push_back(std::move(alive));
    }
    for (const Guarded* wait : waits_) {
      if (const auto error = wait->member_.cancellation->reason()) wait->outer_.interrupt(error);
    }
  }
  for (const auto& group : all) group->wake();
}

void LocalReplicas::check_process() const {
  if (process_ == process_generation()) return;
  throw ValueError(
      "a collective in a process that a replica has forked; only the replica itself may call it");
}

std::exception_ptr LocalReplicas::end_of_wait(const Member& member, Waited& waited) const {
  try {
    member.cancellation->check();
    table_->looked(worker_);
    const auto given_last =
        member.run_lock != nullptr ? member.run_lock->given_last() : Waited::never();
    const auto whole = waited.look(given_last);
    const milliseconds gather = table_->spans_hosts() ? kHostsGather : kGather;
    if (const auto found = table_->examine(*member.slot, whole < gather)) {
      throw_as(found->kind, found->text);
    }
    const std::chrono::milliseconds timeout = member.timeout;
    if (waited.late() >= timeout) {
      const std::string absent = table_->absentees(*member.slot);
      throw Timeout(str("waited ", timeout.count(), " ms: ",
                        absent.empty() ? "all replicas have arrived, but not their data" : absent));
    }
  } catch (const CollectiveMismatch&) {
    // Several replicas of a map may find out at once: the first tells all.
    member.cancellation->cancel(std::current_exception());
    return member.cancellation->error();
  } catch (...) {
    return std::current_exception();
  }
  return nullptr;
}

LocalReplicas::Guarded::Guarded(LocalReplicas& replicas, const Member& member,
                                comm::Communicator& outer)
    : replicas_(replicas), member_(member), outer_(outer) {
  const MutexLock lock(replicas_.mutex_);
  if (!replicas_.watcher_.joinable())
    replicas_.watcher_ =
        std::jthread([&replicas](const std::stop_token& stop) { replicas.watch(stop); });
  replicas_.waits_.push_back(this);  // last: nothing must throw once it is listed
}

LocalReplicas::Guarded::~Guarded() {
  const MutexLock lock(replicas_.mutex_);
  std::erase(replicas_.waits_, this);
}

Waited LocalReplicas::Guarded::waited() const {
  const MutexLock lock(replicas_.mutex_);
  return waited_;
}

void LocalReplicas::watch(const std::stop_token& stop) {
  while (!stopped_within(kLookAround, stop)) {
    const MutexLock lock(mutex_);
    for (Guarded* const wait : waits_) {
      if (const auto error = end_of_wait(wait->member_, wait->waited_))
        wait->outer_.interrupt(error);
    }
  }
}

}  // namespace lockstep::groups
