#include "framework/watch/job_watch.h"

#include <algorithm>
#include <memory>

#include "framework/base/errors.h"
#include "framework/base/text.h"

namespace lockstep::watch {
namespace {

using std::chrono::milliseconds;

// For a wait that lasts for kFirstReading all boards are read; again while it lasts, less often.
constexpr milliseconds kFirstReading{50};
constexpr milliseconds kRarestReading{1000};
// While a reading lasts for so long, those who have answered may tell more.
constexpr milliseconds kLateReading{200};
// How long, from when it was first seen to be waited in, a call's mismatch waits for those who may
// yet be part of it, so that it names all sides.
constexpr milliseconds kGather{250};
// Groups that a message may name.
constexpr std::size_t kUnheld = 4096;
// Bytes that a host may say of a worker in an answer: a board with all seats and groups takes 76
// MiB.
constexpr std::size_t kMostOfWorker = std::size_t{96} << 20;

}  // namespace

JobWatch::JobWatch(std::size_t own, const std::vector<Range>& workers, int replicas, Board& board,
                   Send send)
    : own_(own),
      board_(board),
      send_(std::move(send)),
      waits_(board, workers[own], kFirstReading, kRarestReading),
      copy_(workers) {
  copy_.memory().common().replicas.store(static_cast<std::uint64_t>(replicas));
}

void JobWatch::progress() {
  if (!board_.spans_hosts()) return;
  const std::uint64_t wanted = board_.readings_wanted();
  const bool lasts = !waits_.look().empty();
  const bool is_asked = std::exchange(readings_wanted_, wanted) != wanted;
  if (is_asked || lasts) want(is_asked ? 2 : 1);
}

void JobWatch::hear(std::size_t from, const BoardMessage& message) {
  const bool is_for_first = std::holds_alternative<ReadingsWanted>(message) ||
                            std::holds_alternative<BoardWords>(message);
  require<DataError>(is_for_first == (own_ == 0) && from < copy_.workers().size(),
                     "host 0 alone reads the boards of all hosts");
  std::visit([&](const auto& each) { take(from, each); }, message);
}

void JobWatch::want(int readings) {
  if (own_ != 0) return send_(0, ReadingsWanted{readings});
  wanted_ = std::clamp(readings, wanted_, 2);
  if (awaited_.empty()) return begin_reading();
  if (Clock::now() - begun_ < kLateReading) return;
  begun_ = Clock::now();  // not more often
  for (std::size_t host = 1; host < copy_.workers().size(); ++host) {
    if (!awaited_.contains(host)) send_(host, BoardLook{number_});
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
    send_(host, BoardLook{number_});
  }
}

void JobWatch::take(std::size_t /*from*/, const BoardLook& look) {
  std::vector<std::string> pieces = copy_.read(board_, own_);
  if (pieces.empty()) pieces.emplace_back();
  for (std::string& piece : pieces) {
    const bool is_last = &piece == &pieces.back();
    send_(0, BoardWords{look.number, std::move(piece), is_last});
  }
}

void JobWatch::take(std::size_t from, const BoardWords& words) {
  std::string& come = come_[from];
  come += words.words;
  require<DataError>(come.size() <= copy_.workers()[from].size() * kMostOfWorker, "host ", from,
                     " says too much of its board");
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

void JobWatch::take(std::size_t /*from*/, const BoardNews& news) {
  for (const Board::Finding& finding : news.findings) board_.publish(finding);
  for (const Board::UnheldGroup& group : news.unheld) board_.let_go(group);
}

// One seat of each host for each call in which any of it waits.
std::vector<std::pair<std::size_t, SeatView>> JobWatch::waits() const {
  std::vector<std::pair<std::size_t, SeatView>> all;
  for (std::size_t host = 0; host < copy_.workers().size(); ++host) {
    std::set<Call> seen;
    for (const int worker : copy_.workers()[host]) {
      for (const std::uint32_t index : copy_.memory().worker(worker).used_seats()) {
        const auto seat = read_seat(copy_.memory(), {.worker = worker, .index = index});
        if (!seat || seat->state != SeatState::waiting) continue;
        if (seen.emplace(seat->key, seat->number).second) all.emplace_back(host, *seat);
      }
    }
  }
  return all;
}

// Tells of the verdicts that hold, and returns them. Calls that several are about get the first.
std::map<JobWatch::Call, Board::Verdict> JobWatch::confirm() {
  std::map<Call, Board::Verdict> verdicts;
  for (const Suspicion& each : suspicions_) {
    if (!each.search.holds()) continue;
    Board::Verdict verdict = each.verdict;
    for (const PendingCall* call : each.search.found().calls) {
      const auto known = verdicts.find({call->key, call->number});
      if (known != verdicts.end()) verdict = known->second;
    }
    for (const PendingCall* call : each.search.found().calls) {
      verdicts.emplace(Call(call->key, call->number), verdict);
    }
  }
  for (const auto& [call, verdict] : verdicts) {
    for (std::size_t host = 0; host < copy_.workers().size(); ++host) {
      tell(host, {{{call.first, call.second, verdict}}, {}});
    }
  }
  return verdicts;
}

// Looks for reasons why calls can never end, but for those of which hosts were told.
void JobWatch::suspect(std::map<Call, Board::Verdict> told) {
  const BoardMemory& memory = copy_.memory();
  const auto now = Clock::now();
  suspicions_.clear();
  decltype(since_) since;
  const auto indices = std::make_shared<VerdictSearch::Indices>();
  for (const auto& [host, seat] : waits()) {
    const Call call{seat.key, seat.number};
    const auto known = since_.find(call);
    const auto first = known == since_.end() ? now : known->second;
    since.emplace(call, first);
    const FindingRing& verdicts = memory.common(static_cast<int>(host)).verdicts;
    if (published(verdicts, seat.key, seat.number, Which::first)) continue;
    // Another host has found it, whose members may have gone on since.
    if (const auto verdict = published(memory, seat.key, seat.number)) {
      tell(host, {{{seat.key, seat.number, *verdict}}, {}});
      continue;
    }
    if (!told.try_emplace(call).second) continue;
    VerdictSearch& search =
        suspicions_.emplace_back(Suspicion{VerdictSearch(memory, indices), {}}).search;
    const auto verdict = found_by(memory, search, seat.place);
    const bool is_ripe = verdict && (verdict->settled || now - first >= kGather);
    if (is_ripe) suspicions_.back().verdict = *verdict;
    if (!is_ripe) suspicions_.pop_back();
  }
  since_ = std::move(since);
}

// Of a call of one host that host's board knows more.
void JobWatch::tell_absentees() {
  static_cast<void>(copy_.read(board_, own_));
  const BoardMemory& memory = copy_.memory();
  VerdictSearch search(memory);
  // The oldest wait comes last: of many in a ring it is the one that stays, and is late first.
  auto all = waits();
  std::ranges::stable_sort(all, std::greater(), [&](const auto& wait) {
    const auto known = since_.find({wait.second.key, wait.second.number});
    return known == since_.end() ? Clock::time_point::max() : known->second;
  });
  for (const auto& [host, seat] : all) {
    const PendingCall* const call = search.call_of(seat.place);
    const auto is_here = [&, number = host + 1](const GroupMember& member) {
      return memory.worker(member.worker).host.load() == number;
    };
    if (call == nullptr || std::ranges::all_of(call->members, is_here)) continue;
    const Board::Verdict said{ErrorKind::timeout, absentees_of(memory, *call)};
    tell(host, {{{seat.key, seat.number, said}}, {}});
  }
}

// A group that nobody holds in two readings may be forgotten, unless its worker takes it up again:
// all of the second was read after that worker had let it go.
void JobWatch::tell_unheld() {
  std::set<std::uint64_t> held;
  std::map<Board::UnheldGroup, std::uint64_t> unheld;
  for (int worker = 0; worker < copy_.memory().workers(); ++worker) {
    const WorkerWords& words = copy_.memory().worker(worker);
    for (std::uint32_t slot = 0; slot < group_slots(words); ++slot) {
      const std::uint64_t key = words.keys[slot].load();
      const std::uint64_t holds = words.holds[slot].load();
      if (key != 0 && holds % 2 != 0) held.insert(key);
      if (key != 0 && holds % 2 == 0) unheld.emplace(Board::UnheldGroup{worker, slot, holds}, key);
    }
  }
  std::erase_if(unheld, [&](const auto& group) { return held.contains(group.second); });
  for (std::size_t host = 0; host < copy_.workers().size(); ++host) {
    BoardNews news;
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

}  // namespace lockstep::watch
