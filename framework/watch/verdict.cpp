#include <algorithm>
#include <optional>
#include <set>
#include <span>
#include <string>
#include <string_view>
#include <tuple>
#include <utility>
#include <vector>

#include <string.h>

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
std::string list(const std::vector<std::string>& items) {
  if (items.size() == 1 || items.size() > kNamed) return listed(items, kNamed);
  return str(join(std::span(items).first(items.size() - 1)), " and ", items.back());
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
  return read_text(memory.worker(place.worker).seats[place.index].name);
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
    auto said = mapped(clauses_, [&](const Clause& clause) { return say(clause); });
    const std::string last = std::move(said.back());
    said.pop_back();
    if (said.empty()) return last;
    return str(list(said), " while ", last, hints());
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

// How old it is what another host has told `at` that time, if it is old: "" if not.
std::string age(std::uint64_t at) {
  constexpr std::uint64_t kOld = 5000;
  const std::uint64_t ago = at == 0 ? 0 : now_ms() - at;
  if (ago < kOld) return "";
  return str(" (", ago / 1000, " s ago, the last that its host has told)");
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
  const std::string ago = age(memory.worker(worker).copied_at.load());
  if (missing.is_own) {
    return str("replica ", name_of(memory, missing.seat->place), on_host(memory, worker),
               " has not arrived: it ", doing(memory, *missing.seat), ago);
  }
  const std::string who = unseated(memory, call, missing);
  if (!memory.is_known(worker)) {
    const std::string where = on_host(memory, worker);
    return str(who, " is", where.empty() ? " on another host" : where,
               ", of which nothing is known: it may not have arrived");
  }
  if (!missing.seat) {
    return str(who, on_host(memory, worker), " has not arrived: it has not started", ago);
  }
  return str(who, " has not arrived: it has not started, and replica ",
             name_of(memory, missing.seat->place), ", which would run it, ",
             doing(memory, *missing.seat), ago);
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
  for (const SeatView& seat : search.found().way) {
    if (seat.state == SeatState::map) is_same = is_same && message.add(seat, nullptr);
  }
  bool has_failed = false;
  Origin nearest = Origin::follower;
  for (const SeatView& seat : search.found().gone) {
    const Origin origin = origin_of(memory, seat);
    has_failed |= origin != Origin::none;
    if (origin != Origin::none) nearest = std::min(nearest, origin);
  }
  for (const SeatView& seat : search.found().gone) {
    if (origin_of(memory, seat) > nearest) continue;
    is_same = is_same && message.add(seat, nullptr);
  }
  if (!is_same) return std::nullopt;
  const ErrorKind failure = nearest == Origin::loss ? ErrorKind::lost : ErrorKind::aborted;
  return Board::Verdict{.kind = has_failed ? failure : ErrorKind::mismatch,
                        .text = message.text(),
                        .settled = has_failed || search.is_settled()};
}

// A verdict that other members have published on a call of this path: they found it by another way.
std::optional<Board::Verdict> known_on_the_way(const BoardMemory& memory,
                                               const VerdictSearch& search) {
  for (const PendingCall* call : search.found().calls) {
    if (auto known = published(memory, call->key, call->number)) return known;
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
    if (auto known = published(memory, seat.id, kOwnEnd)) return known;
    return Board::Verdict{.text = texts->now.substr(mismatch.size())};
  }
  return std::nullopt;
}

// Board::absentees() for the member at `place`.
std::string absent(const BoardMemory& memory, SeatIndex place) {
  VerdictSearch search(memory);
  const PendingCall* const call = search.call_of(place);
  if (call == nullptr) return "";
  const bool is_here = std::ranges::all_of(
      call->members, [&](const GroupMember& member) { return memory.is_local(member.worker); });
  const auto told =
      is_here ? std::nullopt
              : published(memory.common().absentees, call->key, call->number, Which::last);
  return told ? told->verdict.text + (told->verdict.text.empty() ? "" : age(told->at))
              : absentees_of(memory, *call);
}

}  // namespace

std::optional<Board::Verdict> found_by(const BoardMemory& memory, VerdictSearch& search,
                                       SeatIndex waiting) {
  if (!search.find(waiting)) return std::nullopt;
  auto verdict = known_on_the_way(memory, search);
  if (!verdict) verdict = inherited(memory, search);
  if (!verdict) verdict = described(memory, search);
  return verdict;
}

std::string absentees_of(const BoardMemory& memory, const PendingCall& call) {
  std::vector<std::string> said;
  for (const MissingMember& missing : call.missing) {
    if (said.size() == kNamed) {
      said.push_back(str("and ", call.missing.size() - kNamed, " more have not arrived"));
      break;
    }
    said.push_back(describe(memory, call, missing));
  }
  for (const SeatView& seat : call.waiting) {
    const int worker = seat.place.worker;
    if (said.size() > kNamed || !is_stopped(memory, worker)) continue;
    said.push_back(str("replica ", name_of(memory, seat.place), on_host(memory, worker),
                       " has arrived, but its process is stopped by a signal",
                       age(memory.worker(worker).copied_at.load())));
  }
  return join(said, "; ");
}

std::optional<Board::Verdict> Board::examine(const Seat& waiting, bool settled_only) const {
  const BoardMemory& memory = state_->memory;
  const auto seat = read_seat(memory, {waiting.worker_, waiting.index_});
  if (!seat || seat->state != SeatState::waiting) return std::nullopt;
  if (auto known = watch::published(memory, seat->key, seat->number)) return known;
  VerdictSearch search(memory);
  const auto verdict = found_by(memory, search, seat->place);
  if (!verdict || !search.holds() || (settled_only && !verdict->settled)) return std::nullopt;
  for (const PendingCall* call : search.found().calls) {
    watch::publish(memory.common().verdicts, {call->key, call->number, *verdict});
  }
  // Another member may have been first.
  return watch::published(memory, seat->key, seat->number).value_or(*verdict);
}

std::string Board::absentees(const Seat& waiting) const {
  return absent(state_->memory, {.worker = waiting.worker_, .index = waiting.index_});
}

std::vector<Board::Wait> Board::waits(int worker) const {
  const BoardMemory& memory = state_->memory;
  std::vector<Wait> all;
  for (const std::uint32_t index : memory.worker(worker).used_seats()) {
    const auto seat = read_seat(memory, {.worker = worker, .index = index});
    if (!seat || seat->state != SeatState::waiting) continue;
    all.push_back({worker, index, seat->version, seat->key, seat->number});
  }
  return all;
}

std::string Board::text_of(const Wait& wait) const {
  const BoardMemory& memory = state_->memory;
  const auto seat = read_seat(memory, {.worker = wait.worker, .index = wait.seat});
  if (!seat || seat->version != wait.version) return "";
  const auto texts = read_texts(memory, *seat);
  if (!texts) return "";
  return str("replica ", texts->name, " waits in ", texts->now, step_of(*seat));
}

std::string Board::absentees(const Wait& wait) const {
  return absent(state_->memory, {.worker = wait.worker, .index = wait.seat});
}

}  // namespace lockstep::watch
