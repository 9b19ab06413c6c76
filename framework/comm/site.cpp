#include "framework/comm/site.h"

#include <algorithm>
#include <utility>

#include "framework/base/errors.h"
#include "framework/base/text.h"
#include "framework/comm/shared_link.h"

namespace lockstep {
namespace {

using std::chrono::milliseconds;

// How often waits are looked after.
constexpr milliseconds kLookAround{50};
// How long, from the begin of one's wait, a mismatch waits for those who may yet be part of it, so
// that it names all sides.
constexpr milliseconds kGather{300};
// When connections end, how long the board may need to say why; it knows already what a process
// that has ended had to say, and may only be busy.
constexpr milliseconds kAftermath{40};
constexpr milliseconds kBusy{6};
constexpr milliseconds kMoment{2};

// Throws what `site` has to say of a member's wait, if it does so within `patience`.
void explain(const Site& site, const Member& member, Waited waited, milliseconds patience) {
  Waited asked;
  do {
    if (const auto error = site.verdict(member, waited)) std::rethrow_exception(error);
    std::this_thread::sleep_for(kMoment);
  } while (asked.look() < patience);
}

}  // namespace

void Fate::end(const std::exception_ptr& error) {
  const std::lock_guard lock(mutex_);
  if (ended_) return;
  error_ = error;
  ended_ = true;
}

void Fate::end(const std::string& reason) {
  end(std::make_exception_ptr(Aborted(reason)));
}

void Fate::check() const {
  if (ended_) {
    const std::lock_guard lock(mutex_);
    std::rethrow_exception(error_);
  }
  if (outer_) outer_->check();
}

std::exception_ptr Fate::error() const noexcept {
  const std::lock_guard lock(mutex_);
  return error_;
}

bool Fate::ended() const noexcept {
  return ended_ || (outer_ && outer_->ended());
}

Site::Site(int host, std::shared_ptr<Communicator> world, std::shared_ptr<Board> board)
    : host_(host), world_(std::move(world)), board_(std::move(board)) {}

Site::~Site() {
  {
    const std::lock_guard lock(mutex_);
    closing_ = true;
  }
  closing_changed_.notify_all();
  if (watcher_.joinable()) watcher_.join();
}

std::shared_ptr<Meeting> Site::meeting(std::uint64_t key,
                                       const std::function<std::vector<GroupMember>()>& members) {
  const std::lock_guard lock(mutex_);
  if (auto known = meetings_[key].lock()) return known;
  std::erase_if(meetings_, [](const auto& entry) { return entry.second.expired(); });
  auto made = std::make_shared<Meeting>(*this, key, members());
  meetings_[key] = made;
  return made;
}

void Site::wake_all() {
  std::vector<std::shared_ptr<Meeting>> all;
  {
    const std::lock_guard lock(mutex_);
    for (const auto& [key, meeting] : meetings_) {
      if (auto alive = meeting.lock()) all.push_back(std::move(alive));
    }
    for (const Wait& wait : waits_) {
      try {
        wait.member->fate->check();
      } catch (...) {
        wait.outer->interrupt(std::current_exception());
      }
    }
  }
  for (const auto& meeting : all) meeting->wake();
}

void Site::check_process() const {
  if (process_ == process_generation()) return;
  throw ValueError(
      "a collective in a process that a replica has forked; only the replica itself may call it");
}

std::exception_ptr Site::verdict(const Member& member, Waited& waited) const {
  try {
    member.fate->check();
    board_->looked(host_);
    const auto given_last = member.turn != nullptr ? member.turn->given_last() : Waited::never();
    const auto whole = waited.look(given_last);
    if (const auto found = board_->examine(*member.seat, whole < kGather)) {
      switch (found->kind) {
        case Board::Verdict::Kind::mismatch:
          throw CollectiveMismatch(found->text);
        case Board::Verdict::Kind::lost:
          throw ReplicaLost(found->text);
        case Board::Verdict::Kind::failed:
          throw Aborted(found->text);
      }
    }
    if (waited.late() >= member.timeout) {
      const std::string absent = board_->absentees(*member.seat);
      throw Timeout(str("waited ", member.timeout.count(), " ms: ",
                        absent.empty() ? "all replicas have arrived, but not their data" : absent));
    }
  } catch (const CollectiveMismatch&) {
    // Several of a team may find out at once: the first tells all.
    member.fate->end(std::current_exception());
    return member.fate->error();
  } catch (...) {
    return std::current_exception();
  }
  return nullptr;
}

Site::Guarded::Guarded(Site& site, const Member& member, Communicator* outer) : site_(site) {
  const std::lock_guard lock(site_.mutex_);
  wait_ = site_.waits_.insert(site_.waits_.end(), {&member, outer, Waited()});
  if (!site_.watcher_.joinable()) site_.watcher_ = std::thread([&site] { site.watch(); });
}

Site::Guarded::~Guarded() {
  const std::lock_guard lock(site_.mutex_);
  site_.waits_.erase(wait_);
}

Waited Site::Guarded::waited() const {
  const std::lock_guard lock(site_.mutex_);
  return wait_->waited;
}

void Site::watch() {
  std::unique_lock lock(mutex_);
  while (!closing_changed_.wait_for(lock, kLookAround, [&] { return closing_; })) {
    for (Wait& wait : waits_) {
      if (const auto error = verdict(*wait.member, wait.waited)) wait.outer->interrupt(error);
    }
  }
}

Meeting::Meeting(Site& site, std::uint64_t key, std::vector<GroupMember> members)
    : site_(site), key_(key), members_(std::move(members)), local_of_(members_.size()) {
  std::vector<int> hosts;  // in the order of their first places
  for (std::size_t place = 0; place < members_.size(); ++place) {
    const int host = members_[place].host;
    std::size_t index = 0;
    while (index < hosts.size() && hosts[index] != host) ++index;
    if (index == hosts.size()) {
      hosts.push_back(host);
      layout_.places.emplace_back();
    }
    if (host == site.host()) layout_.own = index;
    local_of_[place] = layout_.places[index].size();
    layout_.places[index].push_back(static_cast<int>(place));
  }
  board_group_ = site.board().group(site.host(), key, members_);
  if (hosts.size() > 1) outer_ = site.world()->subgroup(hosts, key);
  deposits_.resize(layout_.places[layout_.own].size());
  waiting_.resize(deposits_.size());
}

const Ledger& Meeting::ledger() const noexcept {
  return outer_ ? outer_->ledger() : own_ledger_;
}

// The last to arrive does the work of all, with mutex_ not held. Where that is much, and nobody
// else is needed for it, those who wait help.
void Meeting::do_all(const Member& member, std::uint64_t fingerprint) {
  if (!outer_) return perform(layout_, deposits_, nullptr, site_.common_buffers());
  const TurnBreak others_may_run;
  const Site::Guarded guarded(site_, member, outer_.get());
  outer_->mark(fingerprint);
  // Those who were in this call have left it: nothing must be sent to them any more.
  if (site_.board().published(*member.seat)) explain_end(member, guarded);
  try {
    perform(layout_, deposits_, outer_.get(), site_.common_buffers());
  } catch (const ProcessEnded&) {
    explain(site_, member, guarded.waited(), kBusy);
    throw;
  } catch (const ReplicaLost&) {
    explain_end(member, guarded);
    throw;
  } catch (const Aborted&) {
    explain_end(member, guarded);
    throw;
  } catch (const CollectiveMismatch&) {
    explain_end(member, guarded);
    throw;
  }
}

// The others do not meet: throws why, if the board knows or gets to know in a moment.
void Meeting::explain_end(const Member& member, const Site::Guarded& guarded) const {
  explain(site_, member, guarded.waited(), kAftermath);
}

// Another replica here has called something else. Throws once it is known who has called what.
void Meeting::fall_out(const Member& member) {
  Waited waited;
  const TurnBreak others_may_run;
  std::unique_lock lock(mutex_);
  changed_.notify_all();
  while (!error_) {
    lock.unlock();
    const auto error = site_.verdict(member, waited);
    lock.lock();
    if (error) fail(error);
    if (!error_) changed_.wait_for(lock, kMoment);
  }
  std::rethrow_exception(error_);
}

void Meeting::meet(const Member& member, int place, std::uint64_t fingerprint,
                   const Deposit& deposit) {
  site_.check_process();
  member.fate->check();
  std::unique_lock lock(mutex_);
  if (error_) std::rethrow_exception(error_);
  const bool first = arrived_ == 0;
  if (first) fingerprint_ = fingerprint;
  if (fingerprint != fingerprint_) {
    lock.unlock();
    fall_out(member);
  }
  const std::size_t local = local_of_[static_cast<std::size_t>(place)];
  deposits_[local] = &deposit;
  waiting_[local] = {current_turn(), std::this_thread::get_id()};
  if (++arrived_ < deposits_.size()) {
    const std::uint64_t generation = generation_;
    lock.unlock();
    return wait_for_others(member, generation, first);
  }
  working_ = true;
  std::exception_ptr error;
  try {
    if (!outer_) work_ = LocalWork::of(deposits_);
    if (work_) {
      changed_.notify_all();
      help(lock);
      changed_.wait(lock, [&] { return helpers_ == 0; });
    } else {
      lock.unlock();
      do_all(member, fingerprint);
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
  if (current_turn() == nullptr || waiting_.size() == 1) return;
  // They go on in the order of their places, the first first: what they do one after the other may
  // be cheaper in order.
  for (const Waiting& each : waiting_) {
    if (each.turn != nullptr) each.turn->line_up(each.thread);
  }
  lock.unlock();
  const TurnBreak others_may_run;
}

// Returns when there is nothing left to be begun of the work.
void Meeting::help(std::unique_lock<std::mutex>& lock) {
  const std::shared_ptr<LocalWork> work = work_;
  ++helpers_;
  lock.unlock();
  work->help();
  lock.lock();
  --helpers_;
  changed_.notify_all();
}

void Meeting::wait_for_others(const Member& member, std::uint64_t generation, bool first) {
  Waited waited;
  const TurnBreak others_may_run;
  std::unique_lock lock(mutex_);
  // Of those who take turns only one runs.
  bool may_help = member.turn == nullptr;
  const auto over = [&] {
    // While the work is under way it uses this replica's buffers: whatever ends it waits for that.
    return generation_ != generation || (may_help && work_) ||
           (!working_ && (error_ || member.fate->ended()));
  };
  // One of those who wait looks around for all.
  for (;;) {
    if (first ? changed_.wait_for(lock, kLookAround, over) : (changed_.wait(lock, over), true)) {
      if (generation_ != generation || !may_help || !work_) break;
      may_help = false;
      help(lock);
      continue;
    }
    if (working_ || error_) continue;
    lock.unlock();
    const auto error = site_.verdict(member, waited);
    lock.lock();
    if (error && !working_ && generation_ == generation) fail(error);
  }
  if (generation_ != generation && !error_) return;
  if (!error_) {
    try {
      member.fate->check();
    } catch (...) {
      fail(std::current_exception());
    }
  }
  std::rethrow_exception(error_);
}

void Meeting::fail(const std::exception_ptr& error) {
  if (!error_) error_ = error;
  changed_.notify_all();
}

void Meeting::wake() {
  const std::lock_guard lock(mutex_);
  changed_.notify_all();
}

void Meeting::interrupt(const std::exception_ptr& error) noexcept {
  const std::lock_guard lock(mutex_);
  if (outer_) outer_->interrupt(error);
  fail(error);
}

}  // namespace lockstep
