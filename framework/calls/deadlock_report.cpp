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
#include "framework/calls/call_table.h"
#include "framework/calls/deadlock_detector.h"
#include "framework/calls/table_memory.h"

namespace lockstep::calls {
namespace {

// A message names this many members at most, and counts the others.
constexpr std::size_t kNamed = 16;

// Sorts "2" before "10", and "(0, 2)" before "(0, 10)".
bool name_less(const std::string& a, const std::string& b) {
  return ::strverscmp(a.c_str(), b.c_str()) < 0;
}

// Returns "0, 1 and 3"; the last of many is how many more there are.
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

// The name is constant while the member has the slot.
std::string name_of(const TableMemory& memory, SlotIndex place) {
  return read_text(memory.worker(place.worker).slots[place.index].name);
}

// Members about which a message says the same.
struct Clause {
  SlotState state;
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
  explicit Message(const TableMemory& memory) : memory_(memory) {}

  // Adds a member's state, once; `call` is where it waits. False if its slot has changed.
  bool add(const SlotView& slot, const PendingCall* call) {
    if (!seen_.insert(slot.place).second) return true;
    const auto texts = read_texts(memory_, slot);
    if (!texts) return false;
    Clause clause{.state = slot.state,
                  .text = slot.state == SlotState::returned ? "" : texts->now,
                  .fingerprint = call != nullptr ? slot.fingerprint : 0,
                  .call = call,
                  .names = {}};
    auto same = std::ranges::find_if(
        clauses_, [&](const Clause& other) { return other.says_the_same(clause); });
    if (same == clauses_.end()) same = clauses_.insert(same, std::move(clause));
    same->names.push_back(texts->name);
    return true;
  }

  // Names the odd one out first, and what was thrown last, because it may be long.
  [[nodiscard]] std::string text() {
    for (Clause& clause : clauses_) std::ranges::sort(clause.names, name_less);
    std::ranges::sort(clauses_, [](const Clause& a, const Clause& b) {
      const auto rank = [](const Clause& c) {
        return std::tuple(c.state == SlotState::threw, c.names.size(), c.state);
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
    if (clause.state == SlotState::map) return str(who, one ? " is in " : " are in ", clause.text);
    if (clause.state == SlotState::returned) return str(who, one ? " has" : " have", " returned");
    return str(who, one ? " has thrown: " : " have thrown: ", clause.text);
  }

  // Returns words that tell this call from another one with the same text; "" if there is none.
  [[nodiscard]] std::string which(const Clause& clause) const {
    const bool alike = std::ranges::any_of(clauses_, [&](const Clause& other) {
      return other.call != nullptr && other.text == clause.text && other.call != clause.call;
    });
    if (!alike) return "";
    std::vector<std::string> names;
    for (const SlotView& slot : clause.call->waiting) names.push_back(name_of(memory_, slot.place));
    for (const MissingMember& missing : clause.call->missing) {
      if (missing.slot && missing.is_own) names.push_back(name_of(memory_, missing.slot->place));
    }
    std::ranges::sort(names, name_less);
    return str(" (", ordinal(clause.call->number), " of ", replicas(names), ")");
  }

  // Returns hints at what clauses do not show: that calls with the same text differ, or that two
  // calls differ only in that one of them is differentiated.
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

  const TableMemory& memory_;
  std::set<SlotIndex> seen_;
  std::vector<Clause> clauses_;
};

// Returns " (after step 17)" if the member has told its step; else "".
std::string step_of(const SlotView& slot) {
  return slot.step == 0 ? "" : str(" (after step ", slot.step, ")");
}

bool is_stopped(const TableMemory& memory, int worker) {
  return memory.worker(worker).stopped.load() != 0;
}

std::string doing(const TableMemory& memory, const SlotView& slot) {
  const auto texts = read_texts(memory, slot);
  // The member goes from one state to the next: it is as good as running.
  if (!texts) return "is running";
  const std::string last = slot.finished == 0 ? ", and it has finished no collective"
                                              : str(", and the last collective it finished is ",
                                                    texts->last, ", its ", ordinal(slot.finished));
  if (slot.state == SlotState::threw) return str("has thrown: ", texts->now);
  if (is_stopped(memory, slot.place.worker))
    return str("is stopped by a signal", step_of(slot), last);
  if (slot.state == SlotState::waiting) return str("waits in ", texts->now, step_of(slot), last);
  if (slot.state == SlotState::map) return str("is in ", texts->now, step_of(slot), last);
  if (slot.state == SlotState::returned) return str("has returned", last);
  return str("is running", step_of(slot), last);
}

// Returns how old news of another host from the time `at` are, if they are old; else "".
std::string age(std::uint64_t at) {
  constexpr std::uint64_t kOld = 5000;
  const std::uint64_t ago = at == 0 ? 0 : now_ms() - at;
  if (ago < kOld) return "";
  return str(" (", ago / 1000, " s ago, the last that its host has told)");
}

// Returns " on host 1" if the call table knows the worker's host; else "".
std::string on_host(const TableMemory& memory, int worker) {
  const std::uint64_t host = memory.worker(worker).host.load();
  return host == 0 ? "" : str(" on host ", host - 1);
}

// Names a member without a slot. In a group of the whole job, its place is its number.
std::string without_slot(const TableMemory& memory, const PendingCall& call,
                         const MissingMember& missing) {
  const bool is_jobs = memory.common().replicas.load() == call.members.size() &&
                       missing.member.ancestors == decltype(missing.member.ancestors){};
  return is_jobs ? str("replica ", missing.place)
                 : str("the member at place ", missing.place, " of the group");
}

std::string describe(const TableMemory& memory, const PendingCall& call,
                     const MissingMember& missing) {
  const int worker = missing.member.worker;
  const std::string ago = age(memory.worker(worker).copied_at.load());
  if (missing.is_own) {
    return str("replica ", name_of(memory, missing.slot->place), on_host(memory, worker),
               " has not arrived: it ", doing(memory, *missing.slot), ago);
  }
  const std::string who = without_slot(memory, call, missing);
  if (!memory.is_known(worker)) {
    const std::string where = on_host(memory, worker);
    return str(who, " is", where.empty() ? " on another host" : where,
               ", of which nothing is known: it may not have arrived");
  }
  if (!missing.slot) {
    return str(who, on_host(memory, worker), " has not arrived: it has not started", ago);
  }
  return str(who, " has not arrived: it has not started, and replica ",
             name_of(memory, missing.slot->place), ", which would run it, ",
             doing(memory, *missing.slot), ago);
}

// The origin of a member's error: it is the cause; a loss, which may have a cause; or it follows
// from another member's error. A member that has returned has no error.
enum class Origin { none, cause, loss, follower };

Origin origin_of(const TableMemory& memory, const SlotView& slot) {
  if (slot.state != SlotState::threw) return Origin::none;
  const auto texts = read_texts(memory, slot);
  const auto has_thrown = [&](ErrorKind kind) {
    return texts && texts->now.starts_with(beginning_for(kind));
  };
  if (has_thrown(ErrorKind::aborted)) return Origin::follower;
  return has_thrown(ErrorKind::lost) ? Origin::loss : Origin::cause;
}

// Returns the result of the search as a message about all members on its path.
std::optional<CallTable::DeadlockReport> described(const TableMemory& memory,
                                                   const DeadlockDetector& search) {
  Message message(memory);
  bool is_same = true;
  for (const PendingCall* call : search.found().calls) {
    for (const SlotView& slot : call->waiting) is_same = is_same && message.add(slot, call);
  }
  for (const SlotView& slot : search.found().way) {
    if (slot.state == SlotState::map) is_same = is_same && message.add(slot, nullptr);
  }
  bool has_failed = false;
  Origin nearest = Origin::follower;
  for (const SlotView& slot : search.found().gone) {
    const Origin origin = origin_of(memory, slot);
    has_failed |= origin != Origin::none;
    if (origin != Origin::none) nearest = std::min(nearest, origin);
  }
  for (const SlotView& slot : search.found().gone) {
    if (origin_of(memory, slot) > nearest) continue;
    is_same = is_same && message.add(slot, nullptr);
  }
  if (!is_same) return std::nullopt;
  const ErrorKind failure = nearest == Origin::loss ? ErrorKind::lost : ErrorKind::aborted;
  return CallTable::DeadlockReport{.kind = has_failed ? failure : ErrorKind::mismatch,
                                   .text = message.text(),
                                   .settled = has_failed || search.is_settled()};
}

// Returns a report that other members, on other paths, have published on a call of this path.
std::optional<CallTable::DeadlockReport> known_on_the_way(const TableMemory& memory,
                                                          const DeadlockDetector& search) {
  for (const PendingCall* call : search.found().calls) {
    if (auto known = published(memory, call->key, call->number)) return known;
  }
  return std::nullopt;
}

// Returns the mismatch of a member that has ended with one: those that wait for it end likewise.
std::optional<CallTable::DeadlockReport> inherited(const TableMemory& memory,
                                                   const DeadlockDetector& search) {
  const std::string mismatch = beginning_for(ErrorKind::mismatch);
  for (const SlotView& slot : search.found().gone) {
    if (slot.state != SlotState::threw) continue;
    const auto texts = read_texts(memory, slot);
    if (!texts || !texts->now.starts_with(mismatch)) continue;
    if (auto known = published(memory, slot.id, kOwnEnd)) return known;
    return CallTable::DeadlockReport{.text = texts->now.substr(mismatch.size())};
  }
  return std::nullopt;
}

// Returns CallTable::absentees() for the member at `place`.
std::string absent(const TableMemory& memory, SlotIndex place) {
  DeadlockDetector search(memory);
  const PendingCall* const call = search.call_of(place);
  if (call == nullptr) return "";
  const bool is_here = std::ranges::all_of(
      call->members, [&](const GroupMember& member) { return memory.is_local(member.worker); });
  const auto told =
      is_here ? std::nullopt
              : published(memory.common().absentees, call->key, call->number, Which::last);
  return told ? told->report.text + (told->report.text.empty() ? "" : age(told->at))
              : absentees_of(memory, *call);
}

}  // namespace

std::optional<CallTable::DeadlockReport> found_by(const TableMemory& memory,
                                                  DeadlockDetector& search, SlotIndex waiting) {
  if (!search.find(waiting)) return std::nullopt;
  auto report = known_on_the_way(memory, search);
  if (!report) report = inherited(memory, search);
  if (!report) report = described(memory, search);
  return report;
}

std::string absentees_of(const TableMemory& memory, const PendingCall& call) {
  std::vector<std::string> said;
  for (const MissingMember& missing : call.missing) {
    if (said.size() == kNamed) {
      said.push_back(str("and ", call.missing.size() - kNamed, " more have not arrived"));
      break;
    }
    said.push_back(describe(memory, call, missing));
  }
  for (const SlotView& slot : call.waiting) {
    const int worker = slot.place.worker;
    if (said.size() > kNamed || !is_stopped(memory, worker)) continue;
    said.push_back(str("replica ", name_of(memory, slot.place), on_host(memory, worker),
                       " has arrived, but its process is stopped by a signal",
                       age(memory.worker(worker).copied_at.load())));
  }
  return join(said, "; ");
}

std::optional<CallTable::DeadlockReport> CallTable::examine(const Slot& waiting,
                                                            bool settled_only) const {
  const TableMemory& memory = state_->memory;
  const auto slot = read_slot(memory, {waiting.worker_, waiting.index_});
  if (!slot || slot->state != SlotState::waiting) return std::nullopt;
  if (auto known = calls::published(memory, slot->key, slot->number)) return known;
  DeadlockDetector search(memory);
  const auto report = found_by(memory, search, slot->place);
  if (!report || !search.holds() || (settled_only && !report->settled)) return std::nullopt;
  for (const PendingCall* call : search.found().calls) {
    calls::publish(memory.common().reports, {call->key, call->number, *report});
  }
  // Another member may have been first.
  return calls::published(memory, slot->key, slot->number).value_or(*report);
}

std::string CallTable::absentees(const Slot& waiting) const {
  return absent(state_->memory, {.worker = waiting.worker_, .index = waiting.index_});
}

std::vector<CallTable::Wait> CallTable::waits(int worker) const {
  const TableMemory& memory = state_->memory;
  std::vector<Wait> all;
  for (const std::uint32_t index : memory.worker(worker).used_slots()) {
    const auto slot = read_slot(memory, {.worker = worker, .index = index});
    if (!slot || slot->state != SlotState::waiting) continue;
    all.push_back({worker, index, slot->version, slot->key, slot->number});
  }
  return all;
}

std::string CallTable::text_of(const Wait& wait) const {
  const TableMemory& memory = state_->memory;
  const auto slot = read_slot(memory, {.worker = wait.worker, .index = wait.slot});
  if (!slot || slot->version != wait.version) return "";
  const auto texts = read_texts(memory, *slot);
  if (!texts) return "";
  return str("replica ", texts->name, " waits in ", texts->now, step_of(*slot));
}

std::string CallTable::absentees(const Wait& wait) const {
  return absent(state_->memory, {.worker = wait.worker, .index = wait.slot});
}

}  // namespace lockstep::calls
