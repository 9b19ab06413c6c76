#include <algorithm>
#include <chrono>
#include <cstring>
#include <iterator>
#include <memory>
#include <optional>
#include <set>
#include <string>
#include <string_view>
#include <tuple>
#include <utility>
#include <vector>

#include "framework/base/text.h"
#include "framework/watch/board.h"
#include "framework/watch/board_memory.h"
#include "framework/watch/verdict_search.h"

namespace lockstep::watch {
namespace {

// A message names this many members at most, and counts the others.
constexpr std::size_t kNamed = 16;

// "2" before "10", and "(0, 2)" before "(0, 10)".
bool name_less(const std::string& a, const std::string& b) {
  return ::strverscmp(a.c_str(), b.c_str()) < 0;
}

// "0, 1 and 3"; the last of many is how many more there are.
std::string list(std::vector<std::string> items) {
  if (items.size() == 1) return items.front();
  if (items.size() > kNamed) {
    const std::size_t more = items.size() - kNamed;
    items.resize(kNamed);
    items.push_back(str(more, " more"));
  }
  const std::string last = std::move(items.back());
  items.pop_back();
  return str(join(items), " and ", last);
}

std::string replicas(const std::vector<std::string>& names) {
  return str(names.size() == 1 ? "replica " : "replicas ", list(names));
}

std::string ordinal(std::uint64_t number) {
  const std::uint64_t tens = number % 100 / 10;
  const std::uint64_t ones = tens == 1 ? 0 : number % 10;
  return str(number, ones == 1 ? "st" : ones == 2 ? "nd" : ones == 3 ? "rd" : "th");
}

// Constant while the member has the seat.
std::string name_of(const BoardMemory& memory, SeatIndex place) {
  const SeatWords& seat = memory.worker(place.worker).seats[place.index];
  return read_text(seat.name, std::size(seat.name));
}

// Members of which a message says the same.
struct Clause {
  SeatState state;
  std::string text;
  std::uint64_t fingerprint = 0;
  const PendingCall* call = nullptr;
  std::vector<std::string> names;

  [[nodiscard]] bool says_the_same(const Clause& other) const {
    return state == other.state && text == other.text && fingerprint == other.fingerprint &&
           call == other.call;
  }
};

class Message {
 public:
  explicit Message(const BoardMemory& memory) : memory_(memory) {}

  // Adds what a member does, once; `call` is what it waits in. False if its seat has changed.
  bool add(const SeatView& seat, const PendingCall* call) {
    if (!seen_.insert(seat.place).second) return true;
    const auto texts = read_texts(memory_, seat);
    if (!texts) return false;
    Clause clause{.state = seat.state,
                  .text = seat.state == SeatState::returned ? "" : texts->now,
                  .fingerprint = call != nullptr ? seat.fingerprint : 0,
                  .call = call,
                  .names = {}};
    auto same = std::ranges::find_if(
        clauses_, [&](const Clause& other) { return other.says_the_same(clause); });
    if (same == clauses_.end()) same = clauses_.insert(same, std::move(clause));
    same->names.push_back(texts->name);
    return true;
  }

  // The odd one out first; what was thrown last, because it may be long.
  [[nodiscard]] std::string text() {
    for (Clause& clause : clauses_) std::ranges::sort(clause.names, name_less);
    std::ranges::sort(clauses_, [](const Clause& a, const Clause& b) {
      const auto rank = [](const Clause& c) {
        return std::tuple(c.state == SeatState::threw, c.names.size(), c.state);
      };
      if (rank(a) != rank(b)) return rank(a) < rank(b);
      if (a.names.front() != b.names.front()) return name_less(a.names.front(), b.names.front());
      return a.text < b.text;
    });
    std::vector<std::string> said;
    for (const Clause& clause : clauses_) said.push_back(say(clause));
    const std::string last = std::move(said.back());
    said.pop_back();
    if (said.empty()) return last;
    return str(list(std::move(said)), " while ", last, hints());
  }

 private:
  static constexpr std::string_view kUnseen = "; the calls differ in what is not shown";
  static constexpr std::string_view kGradients =
      "; an operand requires a gradient on some replicas only: choose between values with "
      "at::where instead of a branch, or call requires_grad_() on all replicas";

  [[nodiscard]] std::string say(const Clause& clause) const {
    const bool one = clause.names.size() == 1;
    const std::string who = replicas(clause.names);
    if (clause.call != nullptr) return str(who, " called ", clause.text, which(clause));
    if (clause.state == SeatState::map) return str(who, one ? " is in " : " are in ", clause.text);
    if (clause.state == SeatState::returned) return str(who, one ? " has" : " have", " returned");
    return str(who, one ? " has thrown: " : " have thrown: ", clause.text);
  }

  // Tells this call from another one with the same text; "" if there is none.
  [[nodiscard]] std::string which(const Clause& clause) const {
    const bool alike = std::ranges::any_of(clauses_, [&](const Clause& other) {
      return other.call != nullptr && other.text == clause.text && other.call != clause.call;
    });
    if (!alike) return "";
    std::vector<std::string> names;
    for (const SeatView& seat : clause.call->waiting) names.push_back(name_of(memory_, seat.place));
    for (const MissingMember& missing : clause.call->missing) {
      if (missing.seat && missing.is_own) names.push_back(name_of(memory_, missing.seat->place));
    }
    std::ranges::sort(names, name_less);
    return str(" (", ordinal(clause.call->number), " of ", replicas(names), ")");
  }

  // Says what the clauses do not show: that calls with the same text differ, or that two calls
  // differ only in that one of them is differentiated.
  [[nodiscard]] std::string hints() const {
    bool unseen = false;
    bool gradients = false;
    for (const Clause& clause : clauses_) {
      for (const Clause& other : clauses_) {
        if (clause.call == nullptr || clause.call != other.call) continue;
        unseen |= clause.text == other.text && clause.fingerprint != other.fingerprint;
        gradients |= other.text.starts_with(str(clause.text, kDifferentiated));
      }
    }
    return str(unseen ? kUnseen : "", gradients ? kGradients : "");
  }

  const BoardMemory& memory_;
  std::set<SeatIndex> seen_;
  std::vector<Clause> clauses_;
};

// " (after step 17)", if it has told so.
std::string step_of(const SeatView& seat) {
  return seat.step == 0 ? "" : str(" (after step ", seat.step, ")");
}

bool is_stopped(const BoardMemory& memory, int worker) {
  return memory.worker(worker).stopped.load() != 0;
}

std::string doing(const BoardMemory& memory, const SeatView& seat) {
  const auto texts = read_texts(memory, seat);
  // It goes from one to the next: as good as running.
  if (!texts) return "is running";
  const std::string last = seat.finished == 0 ? ", and it has finished no collective"
                                              : str(", and the last collective it finished is ",
                                                    texts->last, ", its ", ordinal(seat.finished));
  if (seat.state == SeatState::threw) return str("has thrown: ", texts->now);
  if (is_stopped(memory, seat.place.worker))
    return str("is stopped by a signal", step_of(seat), last);
  if (seat.state == SeatState::waiting) return str("waits in ", texts->now, step_of(seat), last);
  if (seat.state == SeatState::map) return str("is in ", texts->now, step_of(seat), last);
  if (seat.state == SeatState::returned) return str("has returned", last);
  return str("is running", step_of(seat), last);
}

// How old what is shown of another host's worker is, if it is old: "" if not.
std::string age(const BoardMemory& memory, int worker) {
  constexpr std::chrono::milliseconds kOld{5000};
  if (memory.is_local(worker)) return "";
  const std::chrono::milliseconds shown(memory.worker(worker).shown_at.load());
  const auto ago = std::chrono::steady_clock::now().time_since_epoch() - shown;
  if (ago < kOld) return "";
  const auto seconds = std::chrono::duration_cast<std::chrono::seconds>(ago);
  return str(" (", seconds.count(), " s ago, the last that its host has told)");
}

// " on host 1", if the board knows that.
std::string on_host(const BoardMemory& memory, int worker) {
  const std::uint64_t host = memory.worker(worker).host.load();
  return host == 0 ? "" : str(" on host ", host - 1);
}

// A member without a seat. In a group of the whole job, its place is its number.
std::string unseated(const BoardMemory& memory, const PendingCall& call,
                     const MissingMember& missing) {
  const bool is_jobs = memory.common().replicas.load() == call.members.size() &&
                       missing.member.elders == decltype(missing.member.elders){};
  return is_jobs ? str("replica ", missing.place)
                 : str("the member at place ", missing.place, " of the group");
}

std::string describe(const BoardMemory& memory, const PendingCall& call,
                     const MissingMember& missing) {
  const int worker = missing.member.worker;
  if (missing.is_own) {
    return str("replica ", name_of(memory, missing.seat->place), on_host(memory, worker),
               " has not arrived: it ", doing(memory, *missing.seat), age(memory, worker));
  }
  const std::string who = unseated(memory, call, missing);
  if (!memory.is_known(worker)) {
    const bool was_shown = memory.worker(worker).answered.load() != 0;
    const std::string where = on_host(memory, worker);
    return str(who, " is", where.empty() ? " on another host" : where, ", of which ",
               was_shown ? "too little" : "nothing", " is known: it may not have arrived");
  }
  if (!missing.seat) {
    return str(who, on_host(memory, worker), " has not arrived: it has not started",
               age(memory, worker));
  }
  return str(who, " has not arrived: it has not started, and replica ",
             name_of(memory, missing.seat->place), ", which would run it, ",
             doing(memory, *missing.seat), age(memory, missing.seat->place.worker));
}

// How near to the cause a member's error is: it is the cause; a loss, which may have a cause; or it
// follows from another member's error. A member that has returned has no error.
enum class Origin { none, cause, loss, follower };

Origin origin_of(const BoardMemory& memory, const SeatView& seat) {
  if (seat.state != SeatState::threw) return Origin::none;
  const auto texts = read_texts(memory, seat);
  const auto has_thrown = [&](ErrorKind kind) {
    return texts && texts->now.starts_with(beginning_for(kind));
  };
  if (has_thrown(ErrorKind::aborted)) return Origin::follower;
  return has_thrown(ErrorKind::lost) ? Origin::loss : Origin::cause;
}

// What the search has found, as a message about all members on its path.
std::optional<Board::Verdict> described(const BoardMemory& memory, const VerdictSearch& search) {
  Message message(memory);
  bool is_same = true;
  for (const PendingCall* call : search.found().calls) {
    for (const SeatView& seat : call->waiting) is_same = is_same && message.add(seat, call);
  }
  for (const SeatView& seat : search.found().maps) is_same = is_same && message.add(seat, nullptr);
  Origin nearest = Origin::follower;
  for (const SeatView& seat : search.found().gone) {
    const Origin origin = origin_of(memory, seat);
    if (origin != Origin::none) nearest = std::min(nearest, origin);
  }
  for (const SeatView& seat : search.found().gone) {
    if (origin_of(memory, seat) > nearest) continue;
    is_same = is_same && message.add(seat, nullptr);
  }
  if (!is_same) return std::nullopt;
  const ErrorKind failure = nearest == Origin::loss ? ErrorKind::lost : ErrorKind::aborted;
  return Board::Verdict{.kind = search.found().has_failed ? failure : ErrorKind::mismatch,
                        .text = message.text(),
                        .settled = search.found().has_failed || search.is_settled()};
}

// A verdict that other members have published on a call of this path: they found it by another way.
std::optional<Board::Verdict> known_on_the_way(const BoardMemory& memory,
                                               const VerdictSearch& search) {
  for (const PendingCall* call : search.found().calls) {
    if (auto known = published(memory.common(), call->key, call->number)) return known;
  }
  return std::nullopt;
}

// A member that waits for one that has ended with a mismatch ends with the same mismatch.
std::optional<Board::Verdict> inherited(const BoardMemory& memory, const VerdictSearch& search) {
  const std::string mismatch = beginning_for(ErrorKind::mismatch);
  for (const SeatView& seat : search.found().gone) {
    if (seat.state != SeatState::threw) continue;
    const auto texts = read_texts(memory, seat);
    if (!texts || !texts->now.starts_with(mismatch)) continue;
    if (auto known = published(memory.common(), seat.id, kOwnEnd)) return known;
    return Board::Verdict{.text = texts->now.substr(mismatch.size())};
  }
  return std::nullopt;
}

// The verdict that a search finds, before its reasons are read again.
std::optional<Board::Verdict> found_by(const BoardMemory& memory, VerdictSearch& search,
                                       SeatIndex waiting) {
  if (!search.find(waiting)) return std::nullopt;
  auto verdict = known_on_the_way(memory, search);
  if (!verdict) verdict = inherited(memory, search);
  if (!verdict) verdict = described(memory, search);
  return verdict;
}

// Publishes a verdict. Another member may have been first: then that one's.
Board::Verdict given(const BoardMemory& memory, const VerdictSearch& search,
                     const Board::Verdict& verdict, const SeatView& waiting) {
  for (const PendingCall* call : search.found().calls) {
    publish(memory.common(), call->key, call->number, verdict);
  }
  return published(memory.common(), waiting.key, waiting.number).value_or(verdict);
}

// Whether what was suspected is so; none as long as other hosts have not answered. What they have
// answered stays the same while it is read.
std::optional<bool> confirmed(const BoardMemory& memory, const Suspicion& suspicion) {
  const auto versions = [&, others = suspicion.search->others()] {
    std::optional<std::vector<std::uint64_t>> all(std::in_place);
    for (const int worker : others) {
      all->push_back(memory.worker(worker).part.load());
      if (all->back() % 2 != 0 || !memory.is_known(worker, suspicion.request))
        return decltype(all)();
    }
    return all;
  };
  const auto before = versions();
  if (!before) return std::nullopt;
  const bool holds = suspicion.search->holds();
  if (versions() != before) return std::nullopt;
  return holds;
}

// Asks for snapshots, now and then.
void ask(const BoardMemory& memory, Suspicion& suspicion) {
  const auto now = Suspicion::Clock::now();
  if (now < suspicion.next) return;
  memory.request(suspicion.seen + 1);
  suspicion.seen = memory.common().wanted.load();
  suspicion.next = now + suspicion.gap;
  suspicion.gap = std::min<Suspicion::Clock::duration>(2 * suspicion.gap, Suspicion::kLongest);
}

// Board::examine() where other hosts run some of the workers.
std::optional<Board::Verdict> examined(const BoardMemory& memory, Suspicion& suspicion,
                                       const SeatView& waiting, bool settled_only) {
  if (suspicion.search) {
    const auto holds = confirmed(memory, suspicion);
    if (!holds) return std::nullopt;
    if (*holds && (suspicion.verdict.settled || !settled_only)) {
      return given(memory, *suspicion.search, suspicion.verdict, waiting);
    }
  }
  suspicion.search = nullptr;
  auto search = std::make_shared<VerdictSearch>(memory);
  const auto verdict = found_by(memory, *search, waiting.place);
  if (!verdict) {
    if (search->meets_others()) ask(memory, suspicion);
    return std::nullopt;
  }
  if (search->others().empty()) {
    if (!search->holds() || (settled_only && !verdict->settled)) return std::nullopt;
    return given(memory, *search, *verdict, waiting);
  }
  suspicion.search = std::move(search);
  suspicion.verdict = *verdict;
  // Drawn after everything was read.
  suspicion.request = memory.next_request();
  memory.request(suspicion.request);
  return std::nullopt;
}

// Board::absentees() for the member at `place`.
std::string absentees_of(const BoardMemory& memory, SeatIndex place) {
  VerdictSearch search(memory);
  const PendingCall* call = search.call_of(place);
  if (call == nullptr) return "";
  if (search.meets_others()) memory.request(memory.next_request());
  std::vector<std::string> said;
  for (const MissingMember& missing : call->missing) {
    if (said.size() == kNamed) {
      said.push_back(str("and ", call->missing.size() - kNamed, " more have not arrived"));
      break;
    }
    said.push_back(describe(memory, *call, missing));
  }
  for (const SeatView& seat : call->waiting) {
    if (said.size() > kNamed || !is_stopped(memory, seat.place.worker)) continue;
    said.push_back(str("replica ", name_of(memory, seat.place), on_host(memory, seat.place.worker),
                       " has arrived, but its process is stopped by a signal",
                       age(memory, seat.place.worker)));
  }
  return join(said, "; ");
}

}  // namespace

std::optional<Board::Verdict> Board::examine(const Seat& waiting, bool settled_only) const {
  const BoardMemory& memory = state_->memory;
  const auto seat = read_seat(memory, {waiting.worker_, waiting.index_});
  if (!seat || seat->state != SeatState::waiting) return std::nullopt;
  if (auto known = watch::published(memory.common(), seat->key, seat->number)) return known;
  if (!memory.has_others()) {
    VerdictSearch search(memory);
    const auto verdict = found_by(memory, search, seat->place);
    if (!verdict || !search.holds() || (settled_only && !verdict->settled)) return std::nullopt;
    return given(memory, search, *verdict, *seat);
  }
  auto suspicion = state_->take_suspicion(seat->place);
  if (!suspicion || suspicion->version != seat->version) {
    suspicion = std::make_shared<Suspicion>();
    suspicion->version = seat->version;
    suspicion->seen = memory.common().wanted.load();
  }
  auto verdict = examined(memory, *suspicion, *seat, settled_only);
  state_->keep_suspicion(seat->place, std::move(suspicion));
  return verdict;
}

std::string Board::absentees(const Seat& waiting) const {
  return absentees_of(state_->memory, {.worker = waiting.worker_, .index = waiting.index_});
}

std::vector<Board::Wait> Board::waits(int worker) const {
  const BoardMemory& memory = state_->memory;
  std::vector<Wait> all;
  for (const std::uint32_t index : memory.worker(worker).used_seats()) {
    const auto seat = read_seat(memory, {.worker = worker, .index = index});
    if (!seat || seat->state != SeatState::waiting) continue;
    all.push_back({index, seat->version, seat->key, seat->number});
  }
  return all;
}

std::string Board::text_of(int worker, const Wait& wait) const {
  const BoardMemory& memory = state_->memory;
  const auto seat = read_seat(memory, {.worker = worker, .index = wait.seat});
  if (!seat || seat->version != wait.version) return "";
  const auto texts = read_texts(memory, *seat);
  if (!texts) return "";
  return str("replica ", texts->name, " waits in ", texts->now, step_of(*seat));
}

std::string Board::absentees(int worker, const Wait& wait) const {
  return absentees_of(state_->memory, {.worker = worker, .index = wait.seat});
}

}  // namespace lockstep::watch
