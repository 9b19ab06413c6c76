#include "framework/calls/table_copy.h"

#include <algorithm>
#include <type_traits>
#include <utility>

#include "framework/base/errors.h"
#include "framework/base/record.h"
#include "framework/base/text.h"

namespace lockstep::calls {
namespace {

constexpr int kTriesToCopy = 8;

// A change is the place of a word in the copies' memory, and the word.
constexpr std::size_t kNumber = sizeof(std::uint64_t);
constexpr std::size_t kChange = 2 * kNumber;

// Returns the words of a part of a call table.
template <typename Part>
auto words_of(Part& part) {
  using Its = std::conditional_t<std::is_const_v<Part>, const Word, Word>;
  return reinterpret_cast<Its*>(&part);
}

}  // namespace

std::string table_layout() {
  constexpr int kVersion = 2;  // changes with the words' meaning
  return str(kVersion, " (", sizeof(PublicWords), " and ", sizeof(WorkerWords), " bytes)");
}

TableCopy::TableCopy(const std::vector<Range>& workers)
    : memory_(static_cast<int>(workers.back().end()), static_cast<int>(workers.size())) {
  for (const Range& of_host : workers) {
    workers_.push_back(consecutive(static_cast<int>(of_host.offset), of_host.size));
    for (const int worker : workers_.back()) memory_.worker(worker).host.store(workers_.size());
  }
}

void TableCopy::copy(const Word* from, Word* to, std::size_t count) {
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

// Copies a version before its record, parents before ids (see DeadlockDetector::holds()), and slots
// before counts: a member that has gone on from a call had arrived before.
void TableCopy::copy_worker(const WorkerWords& from, WorkerWords& to) {
  copy(&from.stopped, &to.stopped);
  copy(&from.slots_used, &to.slots_used);
  const std::size_t slots = to.used_slots().size();
  copy(words_of(from.slots[0]), words_of(to.slots[0]), slots * sizeof(SlotWords) / sizeof(Word));
  copy(from.parents, to.parents, slots);
  copy(from.ids, to.ids, slots);
  copy(&from.groups_used, &to.groups_used);
  const std::uint32_t groups = used_groups(to);
  for (const auto part :
       {&WorkerWords::versions, &WorkerWords::keys, &WorkerWords::offsets, &WorkerWords::holds}) {
    copy(from.*part, to.*part, groups);
  }
  copy(&from.arena_used, &to.arena_used);
  copy(from.arena, to.arena, std::min(to.arena_used.load(), WorkerWords::kArenaWords));
}

// Makes a record unreadable, and returns true, if it has changed since its version was copied.
bool TableCopy::mark(const Word& from, Word& to) {
  if (to.load() == from.load()) return false;
  Word odd{};
  odd.store(to.load() | 1U);
  copy(&odd, &to);
  return true;
}

bool TableCopy::mark_changed(const WorkerWords& from, WorkerWords& to) {
  bool has_changed = false;
  for (const std::uint32_t i : to.used_slots()) {
    has_changed |= mark(from.slots[i].version, to.slots[i].version);
  }
  for (std::uint32_t index = 0; index < used_groups(to); ++index) {
    has_changed |= mark(from.versions[index], to.versions[index]);
  }
  return has_changed;
}

// Copies reports after slots: a member that has ended with a report has published it before.
std::vector<std::string> TableCopy::read(const CallTable& table, std::size_t host) {
  const TableMemory& from = table.state_->memory;
  const FindingRing& reports = from.common().reports;
  FindingRing& copied = memory_.common(static_cast<int>(host)).reports;
  bool has_changed = true;
  for (int i = 0; i < kTriesToCopy && std::exchange(has_changed, false); ++i) {
    for (const int worker : workers_[host])
      copy_worker(from.worker(worker), memory_.worker(worker));
    if (reports.begun.load() != 0) {
      copy(words_of(reports), words_of(copied), sizeof(FindingRing) / sizeof(Word));
    }
    for (const int worker : workers_[host]) {
      has_changed |= mark_changed(from.worker(worker), memory_.worker(worker));
    }
    for (std::size_t k = 0; copied.begun.load() != 0 && k < FindingRing::kKept; ++k) {
      has_changed |= mark(reports.kept[k].version, copied.kept[k].version);
    }
  }
  for (const int worker : workers_[host]) memory_.worker(worker).copied_at.store(now_ms());
  return std::exchange(changes_, {});
}

void TableCopy::write(std::string_view changes, std::size_t host) {
  Word* const words = words_of(memory_.common());
  const auto has = [&](auto& part, std::uint64_t index) {
    const auto begin = static_cast<std::uint64_t>(words_of(part) - words);
    return index >= begin && index - begin < sizeof(part) / sizeof(Word);
  };
  const auto is_of_host = [&](std::uint64_t index) {
    return has(memory_.common(static_cast<int>(host)).reports, index) ||
           std::ranges::any_of(workers_[host],
                               [&](int worker) { return has(memory_.worker(worker), index); });
  };
  for (; !changes.empty(); changes.remove_prefix(kChange)) {
    const std::uint64_t index = changes.size() < kChange ? 0 : number_at(changes, kNumber);
    require<DataError>(changes.size() >= kChange && is_of_host(index), "what host ", host,
                       " says of its call table is damaged");
    words[index].store(number_at(changes.substr(kNumber), kNumber));
  }
  for (const int worker : workers_[host]) memory_.worker(worker).copied_at.store(now_ms());
}

}  // namespace lockstep::calls
