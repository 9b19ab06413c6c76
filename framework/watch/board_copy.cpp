#include "framework/watch/board_copy.h"

#include <algorithm>
#include <type_traits>
#include <utility>

#include "framework/base/errors.h"
#include "framework/base/record.h"
#include "framework/base/text.h"

namespace lockstep::watch {
namespace {

constexpr int kTriesToCopy = 8;

// A change: where a word lies in the copies' memory, and the word.
constexpr std::size_t kNumber = sizeof(std::uint64_t);
constexpr std::size_t kChange = 2 * kNumber;

// The words of a part of a board.
template <typename Part>
auto words_of(Part& part) {
  using Its = std::conditional_t<std::is_const_v<Part>, const Word, Word>;
  return reinterpret_cast<Its*>(&part);
}

}  // namespace

std::string board_layout() {
  constexpr int kVersion = 2;  // of what the words mean
  return str(kVersion, " (", sizeof(PublicWords), " and ", sizeof(WorkerWords), " bytes)");
}

BoardCopy::BoardCopy(const std::vector<Range>& workers)
    : memory_(static_cast<int>(workers.back().end()), static_cast<int>(workers.size())) {
  for (const Range& of_host : workers) {
    workers_.push_back(consecutive(static_cast<int>(of_host.offset), of_host.size));
    for (const int worker : workers_.back()) memory_.worker(worker).host.store(workers_.size());
  }
}

void BoardCopy::copy(const Word* from, Word* to, std::size_t count) {
  for (std::size_t i = 0; i < count; ++i) {
    const std::uint64_t word = from[i].load();
    if (to[i].load() == word) continue;
    to[i].store(word);
    if (changes_.empty() || changes_.back().size() + kChange > kPiece) changes_.emplace_back();
    const auto index = static_cast<std::uint64_t>(&to[i] - words_of(memory_.common()));
    put_number(changes_.back(), index, kNumber);
    put_number(changes_.back(), word, kNumber);
  }
}

// A record's version first, and parents before ids: see SeatWords and VerdictSearch::holds(). Seats
// before counts: a member that has gone on from a call had arrived before.
void BoardCopy::copy_worker(const WorkerWords& from, WorkerWords& to) {
  copy(&from.stopped, &to.stopped);
  copy(&from.seats_used, &to.seats_used);
  const std::size_t seats = to.used_seats().size();
  copy(words_of(from.seats[0]), words_of(to.seats[0]), seats * sizeof(SeatWords) / sizeof(Word));
  copy(from.parents, to.parents, seats);
  copy(from.ids, to.ids, seats);
  copy(&from.groups_used, &to.groups_used);
  const std::uint32_t groups = group_slots(to);
  for (const auto part :
       {&WorkerWords::versions, &WorkerWords::keys, &WorkerWords::offsets, &WorkerWords::holds}) {
    copy(from.*part, to.*part, groups);
  }
  copy(&from.arena_used, &to.arena_used);
  copy(from.arena, to.arena, std::min(to.arena_used.load(), WorkerWords::kArenaWords));
}

// Makes a record unreadable if it has changed since its version was copied. Whether it has.
bool BoardCopy::mark(const Word& from, Word& to) {
  if (to.load() == from.load()) return false;
  Word odd{};
  odd.store(to.load() | 1U);
  copy(&odd, &to);
  return true;
}

bool BoardCopy::mark_changed(const WorkerWords& from, WorkerWords& to) {
  bool has_changed = false;
  for (const std::uint32_t i : to.used_seats()) {
    has_changed |= mark(from.seats[i].version, to.seats[i].version);
  }
  for (std::uint32_t slot = 0; slot < group_slots(to); ++slot) {
    has_changed |= mark(from.versions[slot], to.versions[slot]);
  }
  return has_changed;
}

// Verdicts after seats: who has ended with a verdict has published it before.
std::vector<std::string> BoardCopy::read(const Board& board, std::size_t host) {
  const BoardMemory& from = board.state_->memory;
  const FindingRing& verdicts = from.common().verdicts;
  FindingRing& copied = memory_.common(static_cast<int>(host)).verdicts;
  bool has_changed = true;
  for (int i = 0; i < kTriesToCopy && std::exchange(has_changed, false); ++i) {
    for (const int worker : workers_[host])
      copy_worker(from.worker(worker), memory_.worker(worker));
    if (verdicts.begun.load() != 0) {
      copy(words_of(verdicts), words_of(copied), sizeof(FindingRing) / sizeof(Word));
    }
    for (const int worker : workers_[host]) {
      has_changed |= mark_changed(from.worker(worker), memory_.worker(worker));
    }
    for (std::size_t k = 0; copied.begun.load() != 0 && k < FindingRing::kKept; ++k) {
      has_changed |= mark(verdicts.kept[k].version, copied.kept[k].version);
    }
  }
  for (const int worker : workers_[host]) memory_.worker(worker).copied_at.store(now_ms());
  return std::exchange(changes_, {});
}

void BoardCopy::write(std::string_view changes, std::size_t host) {
  Word* const words = words_of(memory_.common());
  const auto has = [&](auto& part, std::uint64_t index) {
    const auto begin = static_cast<std::uint64_t>(words_of(part) - words);
    return index >= begin && index - begin < sizeof(part) / sizeof(Word);
  };
  const auto is_of_host = [&](std::uint64_t index) {
    return has(memory_.common(static_cast<int>(host)).verdicts, index) ||
           std::ranges::any_of(workers_[host],
                               [&](int worker) { return has(memory_.worker(worker), index); });
  };
  for (; !changes.empty(); changes.remove_prefix(kChange)) {
    const std::uint64_t index = changes.size() < kChange ? 0 : number_at(changes, kNumber);
    require<DataError>(changes.size() >= kChange && is_of_host(index), "what host ", host,
                       " says of its board is damaged");
    words[index].store(number_at(changes.substr(kNumber), kNumber));
  }
  for (const int worker : workers_[host]) memory_.worker(worker).copied_at.store(now_ms());
}

}  // namespace lockstep::watch
