#include "framework/calls/job_watch.h"

#include <algorithm>
#include <memory>

#include "framework/base/errors.h"
#include "framework/base/text.h"

namespace lockstep::calls {
namespace {

using std::chrono::milliseconds;

// All call tables are read when a wait has lasted for kFirstReading, then less and less often.
constexpr milliseconds kFirstReading{50};
constexpr milliseconds kRarestReading{1000};
// In a reading that lasts longer, the hosts that have answered are asked for more.
constexpr milliseconds kLateReading{200};
// An unsettled mismatch waits for so long, since a reading first showed a wait in its call, for
// members that may yet be part of it: it is to name all sides.
constexpr milliseconds kGather{250};
// The most groups that a message may name.
constexpr std::size_t kUnheld = 4096;
// The most bytes of an answer for each worker: a part with all slots and groups takes 76 MiB.
constexpr std::size_t kMostOfWorker = std::size_t{96} << 20;

}  // namespace

JobWatch::JobWatch(std::size_t own, const std::vector<Range>& workers, int replicas,
                   CallTable& table, Send send)
    : own_(own),
      table_(table),
      send_(std::move(send)),
      waits_(table, workers[own], kFirstReading, kRarestReading),
      copy_(workers) {
  copy_.memory().common().replicas.store(static_cast<std::uint64_t>(replicas));
}

void JobWatch::progress() {
  if (!table_.spans_hosts()) return;
  const std::uint64_t wanted = table_.readings_wanted();
  const bool lasts = !waits_.look().empty();
  const bool is_asked = std::exchange(readings_wanted_, wanted) != wanted;
  if (is_asked || lasts) want(is_asked ? 2 : 1);
}

void JobWatch::hear(std::size_t from, const TableMessage& message) {
  const bool is_for_first = std::holds_alternative<ReadingsWanted>(message) ||
                            std::holds_alternative<TableWords>(message);
  require<DataError>(is_for_first == (own_ == 0) && from < copy_.workers().size(),
                     "host 0 alone reads the call tables of all hosts");
  std::visit([&](const auto& each) { take(from, each); }, message);
}

void JobWatch::want(int readings) {
  if (own_ != 0) return send_(0, ReadingsWanted{readings});
  wanted_ = std::clamp(readings, wanted_, 2);
  if (awaited_.empty()) return begin_reading();
  if (Clock::now() - begun_ < kLateReading) return;
  begun_ = Clock::now();  // not again before kLateReading
  for (std::size_t host = 1; host < copy_.workers().size(); ++host) {
    if (!awaited_.contains(host)) send_(host, TableLook{number_});
  }
  tell_absentees();
}

void JobWatch::begin_reading() {
  --wanted_;
  ++number_;
  begun_ = Clock::now();
  for (std::size_t host = 1; host < copy_.workers().size(); ++host) {
    if (copy_.workers()[host].empty()) continue;
    awaited_.insert(host);
    send_(host, TableLook{number_});
  }
}

void JobWatch::take(std::size_t /*from*/, const TableLook& look) {
  std::vector<std::string> pieces = copy_.read(table_, own_);
  if (pieces.empty()) pieces.emplace_back();
  for (std::string& piece : pieces) {
    const bool is_last = &piece == &pieces.back();
    send_(0, TableWords{look.number, std::move(piece), is_last});
  }
}

void JobWatch::take(std::size_t from, const TableWords& words) {
  std::string& come = come_[from];
  come += words.words;
  require<DataError>(come.size() <= copy_.workers()[from].size() * kMostOfWorker, "host ", from,
                     " says too much of its call table");
  if (!words.is_last) return;
  copy_.write(std::exchange(come, {}), from);
  const bool is_answer = words.number == number_ && awaited_.erase(from) > 0;
  if (is_answer && awaited_.empty()) end_reading();
}

void JobWatch::end_reading() {
  tell_absentees();
  suspect(confirm());
  tell_unheld();
  if (!suspicions_.empty()) wanted_ = std::max(wanted_, 1);
  if (wanted_ > 0) begin_reading();
}

void JobWatch::take(std::size_t /*from*/, const TableNews& news) {
  for (const CallTable::Finding& finding : news.findings) table_.publish(finding);
  for (const CallTable::UnheldGroup& group : news.unheld) table_.let_go(group);
}

// Returns one slot of each host for each call in which any of its slots waits.
std::vector<std::pair<std::size_t, SlotView>> JobWatch::waits() const {
  std::vector<std::pair<std::size_t, SlotView>> all;
  for (std::size_t host = 0; host < copy_.workers().size(); ++host) {
    std::set<Call> seen;
    for (const int worker : copy_.workers()[host]) {
      for (const std::uint32_t index : copy_.memory().worker(worker).used_slots()) {
        const auto slot = read_slot(copy_.memory(), {.worker = worker, .index = index});
        if (!slot || slot->state != SlotState::waiting) continue;
        if (seen.emplace(slot->key, slot->number).second) all.emplace_back(host, *slot);
      }
    }
  }
  return all;
}

// Tells hosts of the reports that hold, and returns them. A call in several gets the first one.
std::map<JobWatch::Call, CallTable::DeadlockReport> JobWatch::confirm() {
  std::map<Call, CallTable::DeadlockReport> reports;
  for (const Suspicion& each : suspicions_) {
    if (!each.search.holds()) continue;
    CallTable::DeadlockReport report = each.report;
    for (const PendingCall* call : each.search.found().calls) {
      const auto known = reports.find({call->key, call->number});
      if (known != reports.end()) report = known->second;
    }
    for (const PendingCall* call : each.search.found().calls) {
      reports.emplace(Call(call->key, call->number), report);
    }
  }
  for (const auto& [call, report] : reports) {
    for (std::size_t host = 0; host < copy_.workers().size(); ++host) {
      tell(host, {{{call.first, call.second, report}}, {}});
    }
  }
  return reports;
}

// Searches for reasons why calls can never end. Leaves out the calls whose reports hosts were told.
void JobWatch::suspect(std::map<Call, CallTable::DeadlockReport> told) {
  const TableMemory& memory = copy_.memory();
  const auto now = Clock::now();
  suspicions_.clear();
  decltype(since_) since;
  const auto indices = std::make_shared<DeadlockDetector::Indices>();
  for (const auto& [host, slot] : waits()) {
    const Call call{slot.key, slot.number};
    const auto known = since_.find(call);
    const auto first = known == since_.end() ? now : known->second;
    since.emplace(call, first);
    const FindingRing& reports = memory.common(static_cast<int>(host)).reports;
    if (published(reports, slot.key, slot.number, Which::first)) continue;
    // Another host has found the report, and its members may have gone on since.
    if (const auto report = published(memory, slot.key, slot.number)) {
      tell(host, {{{slot.key, slot.number, *report}}, {}});
      continue;
    }
    if (!told.try_emplace(call).second) continue;
    DeadlockDetector& search =
        suspicions_.emplace_back(Suspicion{DeadlockDetector(memory, indices), {}}).search;
    const auto report = found_by(memory, search, slot.place);
    const bool is_ripe = report && (report->settled || now - first >= kGather);
    if (is_ripe) suspicions_.back().report = *report;
    if (!is_ripe) suspicions_.pop_back();
  }
  since_ = std::move(since);
}

// Tells hosts the absentees of calls across hosts: each host knows more of its own calls.
void JobWatch::tell_absentees() {
  static_cast<void>(copy_.read(table_, own_));
  const TableMemory& memory = copy_.memory();
  DeadlockDetector search(memory);
  // The oldest wait comes last: it is the one that stays in a full ring, and the first to be late.
  auto all = waits();
  std::ranges::stable_sort(all, std::greater(), [&](const auto& wait) {
    const auto known = since_.find({wait.second.key, wait.second.number});
    return known == since_.end() ? Clock::time_point::max() : known->second;
  });
  for (const auto& [host, slot] : all) {
    const PendingCall* const call = search.call_of(slot.place);
    const auto is_here = [&, number = host + 1](const GroupMember& member) {
      return memory.worker(member.worker).host.load() == number;
    };
    if (call == nullptr || std::ranges::all_of(call->members, is_here)) continue;
    const CallTable::DeadlockReport said{ErrorKind::timeout, absentees_of(memory, *call)};
    tell(host, {{{slot.key, slot.number, said}}, {}});
  }
}

// A group that nobody holds in two readings may be forgotten, unless its worker takes it up again:
// the second reading began after that worker had let the group go.
void JobWatch::tell_unheld() {
  std::set<std::uint64_t> held;
  std::map<CallTable::UnheldGroup, std::uint64_t> unheld;
  for (int worker = 0; worker < copy_.memory().workers(); ++worker) {
    const WorkerWords& words = copy_.memory().worker(worker);
    for (std::uint32_t index = 0; index < used_groups(words); ++index) {
      const std::uint64_t key = words.keys[index].load();
      const std::uint64_t holds = words.holds[index].load();
      if (key != 0 && holds % 2 != 0) held.insert(key);
      if (key != 0 && holds % 2 == 0)
        unheld.emplace(CallTable::UnheldGroup{worker, index, holds}, key);
    }
  }
  std::erase_if(unheld, [&](const auto& group) { return held.contains(group.second); });
  for (std::size_t host = 0; host < copy_.workers().size(); ++host) {
    TableNews news;
    for (const auto& [group, key] : unheld) {
      const bool is_here = std::ranges::count(copy_.workers()[host], group.worker) > 0;
      if (is_here && unheld_.contains(group) && news.unheld.size() < kUnheld) {
        news.unheld.push_back(group);
      }
    }
    if (!news.unheld.empty()) tell(host, news);
  }
  unheld_ = std::move(unheld);
}

}  // namespace lockstep::calls
