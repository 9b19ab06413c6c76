#include "framework/calls/table_memory.h"

#include <chrono>
#include <iterator>
#include <utility>

#include <sys/mman.h>
#include <sys/stat.h>

#include "framework/base/errors.h"
#include "framework/base/limits.h"
#include "framework/base/text.h"

namespace lockstep::calls {
namespace {

// Readers do not wait for a writer that was interrupted halfway: a search tries again later.
constexpr int kTries = 64;

static_assert(sizeof(WorkerWords) % kPage == 0 && sizeof(PublicWords) % kPage == 0);

void clear(WorkerWords& words, std::uint64_t index) {
  const Writing writing(words.versions[index]);
  words.keys[index].store(0);
  if (words.holds[index].load() % 2 != 0) words.holds[index].count();
}

// Takes the least free index: from `freed`, or the first that was never used.
std::uint32_t take_index(std::set<std::uint32_t>& freed, Word& used) {
  if (!freed.empty()) return freed.extract(freed.begin()).value();
  const std::uint64_t index = used.load();
  used.store(index + 1);
  return static_cast<std::uint32_t>(index);
}

}  // namespace

std::uint64_t now_ms() {
  const auto now = std::chrono::steady_clock::now().time_since_epoch();
  return static_cast<std::uint64_t>(
      std::chrono::duration_cast<std::chrono::milliseconds>(now).count());
}

TableMemory::TableMemory(int workers, int copies)
    : workers_(workers), tables_(std::max(copies, 1)), has_copies_(copies > 0) {
  const std::size_t bytes =
      CallTable::bytes_for(workers) + static_cast<std::size_t>(tables_ - 1) * sizeof(PublicWords);
  data_ = map_private(bytes);
  // A touched word is to take a page, not 2 MiB. Systems without huge pages refuse, at no loss.
  static_cast<void>(::madvise(data_.get(), bytes, MADV_NOHUGEPAGE));
}

TableMemory::TableMemory(int workers, int descriptor, std::size_t offset) : workers_(workers) {
  const std::size_t end = offset + CallTable::bytes_for(workers);
  struct stat status {};
  require_done<CommError>(::fstat(descriptor, &status) == 0,
                          "the table of pending calls: descriptor ", descriptor, " can't be read");
  require<CommError>(status.st_size >= 0 && static_cast<std::size_t>(status.st_size) >= end,
                     "the table of pending calls: descriptor ", descriptor, " has ", status.st_size,
                     " bytes; a call table of ", workers, " workers at ", offset, " ends at ", end);
  data_ = map_shared(descriptor, offset, CallTable::bytes_for(workers));
}

WorkerWords& TableMemory::worker(int worker) const noexcept {
  std::byte* words = data_.get() + static_cast<std::size_t>(tables_) * sizeof(PublicWords) +
                     static_cast<std::size_t>(worker) * sizeof(WorkerWords);
  return *reinterpret_cast<WorkerWords*>(words);
}

bool TableMemory::is_local(int worker) const noexcept {
  const auto first = common().first_local.load();
  const auto number = static_cast<std::uint64_t>(worker);
  return !has_others() || (number >= first && number - first < common().local_workers.load());
}

std::optional<SlotView> read_slot(const TableMemory& memory, SlotIndex place) {
  const WorkerWords& worker = memory.worker(place.worker);
  const SlotWords& slot = worker.slots[place.index];
  for (int i = 0; i < kTries; ++i) {
    SlotView view{.place = place};
    view.version = slot.version.load();
    if (view.version % 2 != 0) continue;
    view.state = static_cast<SlotState>(slot.state.load());
    view.id = worker.ids[place.index].load();
    view.parent = worker.parents[place.index].load();
    view.key = slot.key.load();
    view.number = slot.number.load();
    view.completed = slot.completed.load() != 0;
    view.children = slot.children.load();
    view.finished = slot.finished.load();
    view.step = slot.step.load();
    view.fingerprint = slot.records[1 - view.finished % 2].fingerprint.load();
    if (slot.version.load() != view.version) continue;
    if (view.state == SlotState::free) break;
    return view;
  }
  return std::nullopt;
}

std::optional<SlotTexts> read_texts(const TableMemory& memory, const SlotView& view) {
  const SlotWords& slot = memory.worker(view.place.worker).slots[view.place.index];
  if (slot.version.load() != view.version) return std::nullopt;
  const std::size_t last = view.finished % 2;
  SlotTexts texts{.name = read_text(slot.name),
                  .now = read_text(slot.records[1 - last].text),
                  .last = read_text(slot.records[last].text)};
  if (slot.version.load() != view.version) return std::nullopt;
  return texts;
}

std::uint32_t used_groups(const WorkerWords& worker) noexcept {
  return static_cast<std::uint32_t>(
      std::min<std::uint64_t>(worker.groups_used.load(), CallTable::kGroups));
}

std::optional<GroupView> find_group(const WorkerWords& worker, std::uint64_t key) {
  for (std::uint32_t index = 0; index < used_groups(worker); ++index) {
    for (int i = 0; i < kTries && worker.keys[index].load() == key; ++i) {
      GroupView view{.index = index, .version = worker.versions[index].load()};
      if (view.version % 2 != 0 || worker.keys[index].load() != key) continue;
      view.offset = worker.offsets[index].load();
      view.held = worker.holds[index].load() % 2 != 0;
      if (view.offset >= WorkerWords::kArenaWords) continue;
      view.size = worker.arena[view.offset].load();
      // Another host may have sent anything.
      if (view.size >= WorkerWords::kArenaWords ||
          view.offset + entry_words(view.size) > WorkerWords::kArenaWords) {
        continue;
      }
      if (worker.versions[index].load() == view.version) return view;
    }
  }
  return std::nullopt;
}

std::vector<GroupMember> read_members(WorkerWords& worker, const GroupView& group) {
  std::vector<GroupMember> members(group.size);
  const MemberWords* words = members_at(worker, group.offset);
  for (std::size_t i = 0; i < members.size(); ++i) {
    members[i] = {.id = words[i].id.load(),
                  .worker = static_cast<std::int32_t>(words[i].worker.load())};
    std::ranges::transform(words[i].ancestors, members[i].ancestors.begin(), &Word::load);
  }
  if (worker.versions[group.index].load() != group.version) members.clear();
  return members;
}

void publish(FindingRing& ring, const CallTable::Finding& finding) noexcept {
  const std::uint64_t order = ring.begun.count() + 1;
  FindingWords& place = ring.kept[order % FindingRing::kKept];
  const std::uint64_t version = place.version.load();
  // Another writer has come round the ring and is here: among so many, one finding is no loss.
  if (version % 2 != 0 || !place.version.replace(version, version + 1)) return;
  place.order.store(order);
  place.key.store(finding.key);
  place.number.store(finding.number);
  place.kind.store(static_cast<std::uint64_t>(finding.report.kind));
  place.settled.store(finding.report.settled ? 1 : 0);
  place.at.store(now_ms());
  write_text(place.text, finding.report.text);
  place.version.store(version + 2);
}

std::optional<PublishedFinding> published(const FindingRing& ring, std::uint64_t key,
                                          std::uint64_t number, Which which) {
  std::optional<PublishedFinding> found;
  for (const FindingWords& place : ring.kept) {
    const std::uint64_t version = place.version.load();
    const std::uint64_t order = place.order.load();
    if (order == 0 || version % 2 != 0 || place.key.load() != key ||
        place.number.load() != number) {
      continue;
    }
    if (found && (order < found->order) != (which == Which::first)) continue;
    const auto kind = std::min(place.kind.load(), static_cast<std::uint64_t>(ErrorKind::aborted));
    PublishedFinding finding{.order = order,
                             .at = place.at.load(),
                             .report = {.kind = static_cast<ErrorKind>(kind),
                                        .text = read_text(place.text),
                                        .settled = place.settled.load() != 0}};
    if (place.version.load() == version) found = std::move(finding);
  }
  return found;
}

std::optional<CallTable::DeadlockReport> published(const TableMemory& memory, std::uint64_t key,
                                                   std::uint64_t number) {
  for (int table = 0; table < memory.tables(); ++table) {
    auto found = published(memory.common(table).reports, key, number, Which::first);
    if (found) return std::move(found->report);
  }
  return std::nullopt;
}

std::uint64_t Arena::take(std::uint64_t size) {
  const auto piece = std::ranges::find_if(pieces_, [&](const auto& p) { return p.second >= size; });
  if (piece == pieces_.end()) return kNone;
  const auto [offset, length] = *piece;
  pieces_.erase(piece);
  if (length > size) pieces_.emplace(offset + size, length - size);
  return offset;
}

void Arena::give(std::uint64_t offset, std::uint64_t size) {
  auto next = pieces_.lower_bound(offset);
  if (next != pieces_.end() && offset + size == next->first) {
    size += next->second;
    next = pieces_.erase(next);
  }
  if (next != pieces_.begin()) {
    const auto before = std::prev(next);
    if (before->first + before->second == offset) {
      before->second += size;
      return;
    }
  }
  pieces_.emplace(offset, size);
}

Arena::Left Arena::left() const {
  Left left;
  for (const auto& [offset, size] : pieces_) {
    left.words += size;
    left.in_one_piece = std::max(left.in_one_piece, size);
  }
  return left;
}

TableState::TableState(TableMemory its_memory)
    : memory(std::move(its_memory)), books_(static_cast<std::size_t>(memory.workers())) {}

TableState::~TableState() {
  for (int worker = 0; worker < memory.workers(); ++worker) {
    if (books_[static_cast<std::size_t>(worker)].owned) memory.worker(worker).owned.store(0);
  }
}

TableState::Books& TableState::books(int worker) {
  require(worker >= 0 && worker < memory.workers(), "a call table of ", memory.workers(),
          " workers has no worker ", worker);
  Books& books = books_[static_cast<std::size_t>(worker)];
  if (!books.owned) {
    WorkerWords& words = memory.worker(worker);
    require<CommError>(words.owned.replace(0, 1), "worker ", worker,
                       " of the call table is another process' or another CallTable's");
    books.owned = true;
    // The owner before this one has left its groups: others may still have been reading them.
    for (std::uint64_t index = 0; index < words.groups_used.load(); ++index) clear(words, index);
    words.groups_used.store(0);
    words.slots_used.store(0);
  }
  return books;
}

std::uint32_t TableState::take_slot(int worker, std::string_view name) {
  const MutexLock lock(mutex_);
  Books& books = this->books(worker);
  WorkerWords& words = memory.worker(worker);
  require<CommError>(!books.free_slots.empty() || words.slots_used.load() != CallTable::kSlots,
                     "replica ", name, " can't start: a process runs at most ", CallTable::kSlots,
                     " replicas and lanes at once, those of maps in maps and who runs them "
                     "among them");
  return take_index(books.free_slots, words.slots_used);
}

void TableState::free_slot(int worker, std::uint32_t index) noexcept {
  const MutexLock lock(mutex_);
  auto& free_slots = books_[static_cast<std::size_t>(worker)].free_slots;
  (void)thrown_by([&] { free_slots.insert(index); });  // without memory the slot is lost
}

std::shared_ptr<CallTable::Group> TableState::hold_group(int worker, std::uint64_t key,
                                                         std::span<const GroupMember> members) {
  const MutexLock lock(mutex_);
  Books& books = this->books(worker);
  for (const GroupMember& member : members) {
    require(member.worker >= 0 && member.worker < memory.workers(), "a member's worker is ",
            member.worker, " in a call table of ", memory.workers(), " workers");
  }
  auto found = books.groups.find(key);
  if (found == books.groups.end()) {
    require(key != 0, "a group's key in the call table is not 0");
    if (books.groups.size() >= books.sweep_at) sweep(worker);
    found = books.groups.emplace(key, add_group(worker, key, members)).first;
  } else {
    WorkerWords& words = memory.worker(worker);
    const auto& [index, offset, group] = found->second;
    const GroupView view{.index = index,
                         .version = words.versions[index].load(),
                         .offset = offset,
                         .size = words.arena[offset].load()};
    require<CommError>(std::ranges::equal(read_members(words, view), members),
                       "two groups of worker ", worker, " have the key ", key, ": one of ",
                       view.size, " members and one of ", members.size());
  }
  Registered& registered = found->second;
  std::shared_ptr<CallTable::Group> group = registered.group.lock();
  if (group == nullptr) {
    MemberWords* const entry = members_at(memory.worker(worker), registered.offset);
    const auto size = static_cast<int>(members.size());
    group = std::make_shared<CallTable::Group>();
    group->state = shared_from_this();
    group->worker = worker;
    group->key = key;
    group->entry = entry;
    group->size = size;
    registered.group = group;
    memory.worker(worker).holds[registered.index].count();
  }
  return group;
}

TableState::Registered TableState::add_group(int worker, std::uint64_t key,
                                             std::span<const GroupMember> members) {
  Books& books = this->books(worker);
  WorkerWords& words = memory.worker(worker);
  const std::uint64_t size = entry_words(members.size());
  const auto take_room = [&] {
    const bool has_entry =
        !books.free_groups.empty() || words.groups_used.load() < CallTable::kGroups;
    return has_entry ? books.arena.take(size) : Arena::kNone;
  };
  std::uint64_t offset = take_room();
  if (offset == Arena::kNone) {
    sweep(worker);
    offset = take_room();
  }
  if (offset == Arena::kNone) {
    const Arena::Left left = books.arena.left();
    throw CommError(str("no room for another group of replicas: one of ", members.size(), " takes ",
                        size * sizeof(Word), " bytes; those of this process hold ",
                        books.groups.size(), " of at most ", CallTable::kGroups, " groups, and of ",
                        CallTable::kArenaBytes, " bytes for these ", left.words * sizeof(Word),
                        " are free, ", left.in_one_piece * sizeof(Word), " in one piece"));
  }

  const std::uint32_t index = take_index(books.free_groups, words.groups_used);
  const Writing writing(words.versions[index]);
  words.arena_used.store(std::max(words.arena_used.load(), offset + size));
  words.keys[index].store(key);
  words.offsets[index].store(offset);
  words.arena[offset].store(members.size());
  MemberWords* entry = members_at(words, offset);
  for (std::size_t i = 0; i < members.size(); ++i) {
    entry[i].id.store(members[i].id);
    for (std::size_t e = 0; e < members[i].ancestors.size(); ++e) {
      entry[i].ancestors[e].store(members[i].ancestors[e]);
    }
    entry[i].worker.store(static_cast<std::uint64_t>(members[i].worker));
    entry[i].arrived.store(0);
  }
  return {.index = index, .offset = offset, .group = {}};
}

void TableState::release_group(int worker, std::uint64_t key) noexcept {
  const MutexLock lock(mutex_);
  auto& groups = books_[static_cast<std::size_t>(worker)].groups;
  const auto found = groups.find(key);
  // Another holder may have taken the group since, and may even have released it.
  if (found == groups.end() || !found->second.group.expired()) return;
  memory.worker(worker).holds[found->second.index].count();
  if (!is_held_elsewhere(worker, key, found->second)) remove_group(worker, key);
}

void TableState::remove_group(int worker, std::uint64_t key) noexcept {
  Books& books = books_[static_cast<std::size_t>(worker)];
  WorkerWords& words = memory.worker(worker);
  const auto [index, offset, group] = books.groups.at(key);
  const std::uint64_t size = entry_words(words.arena[offset].load());
  clear(words, index);
  // Without memory for the books the room is lost.
  (void)thrown_by([&, index = index, offset = offset] {
    books.arena.give(offset, size);
    books.free_groups.insert(index);
  });
  books.groups.erase(key);
}

// A member that waits in a call of the group holds the group. It reads this worker's arrivals from
// this entry, maybe long after this worker's members have gone on and let the group go.
bool TableState::is_held_elsewhere(int worker, std::uint64_t key,
                                   const Registered& registered) const noexcept {
  WorkerWords& words = memory.worker(worker);
  const MemberWords* entry = members_at(words, registered.offset);
  const std::uint64_t size = words.arena[registered.offset].load();
  const std::uint32_t index = registered.index;
  int last = worker;  // a worker's members are mostly side by side
  return std::any_of(entry, entry + size, [&](const MemberWords& member) {
    const auto other = static_cast<int>(member.worker.load());
    if (other == worker || std::exchange(last, other) == other) return false;
    if (!memory.is_local(other)) return words.let_go[index].load() != words.holds[index].load();
    const auto view = find_group(memory.worker(other), key);
    return view && view->held;
  });
}

void TableState::sweep(int worker) noexcept {
  Books& books = books_[static_cast<std::size_t>(worker)];
  const WorkerWords& words = memory.worker(worker);
  bool keeps_some = false;
  for (auto next = books.groups.begin(); next != books.groups.end();) {
    const auto& [key, registered] = *next++;  // the entry may be removed
    if (words.holds[registered.index].load() % 2 != 0) continue;
    const bool keeps = is_held_elsewhere(worker, key, registered);
    keeps_some |= keeps;
    if (!keeps) remove_group(worker, key);
  }
  // The readings let the next sweep remove more.
  if (keeps_some && memory.has_others()) memory.common().readings_wanted.count();
  books.sweep_at = std::max<std::size_t>(64, 2 * books.groups.size());
}

}  // namespace lockstep::calls
