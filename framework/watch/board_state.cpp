#include "framework/watch/board_state.h"

#include <algorithm>
#include <atomic>
#include <iterator>
#include <utility>

#include <unistd.h>

#include "framework/base/errors.h"
#include "framework/base/text.h"

namespace lockstep {
namespace {

// Every member of a group adds its words to one that counts them.
constexpr std::uint64_t kMemberWords = sizeof(MemberWords) / sizeof(Word);

std::uint64_t words_of(std::size_t members) {
  return 1 + kMemberWords * members;
}

void clear(WorkerWords& words, std::uint64_t slot) {
  const std::uint64_t version = words.versions[slot].load();
  words.versions[slot].store(version + 1);
  words.keys[slot].store(0);
  words.held[slot].store(0);
  words.versions[slot].store(version + 2);
}

// Another one for every Board of every process.
std::uint64_t new_token() {
  static std::atomic<std::uint32_t> count{0};
  return (static_cast<std::uint64_t>(::getpid()) << 32U) | (count.fetch_add(1) + 1);
}

// The least index that is free, from `freed` or the first that was never used.
std::uint32_t take_index(std::set<std::uint32_t>& freed, Word& used) {
  if (!freed.empty()) return freed.extract(freed.begin()).value();
  const std::uint64_t index = used.load();
  used.store(index + 1);
  return static_cast<std::uint32_t>(index);
}

}  // namespace

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

BoardState::BoardState(BoardMemory its_memory)
    : memory(std::move(its_memory)), books_(static_cast<std::size_t>(memory.workers())) {}

BoardState::~BoardState() {
  for (int worker = 0; worker < memory.workers(); ++worker) {
    if (books_[static_cast<std::size_t>(worker)].owned) memory.worker(worker).owner.store(0);
  }
}

BoardState::Books& BoardState::books(int worker) {
  require(worker >= 0 && worker < memory.workers(), "a board of ", memory.workers(),
          " workers has no worker ", worker);
  Books& books = books_[static_cast<std::size_t>(worker)];
  if (!books.owned) {
    if (token_ == 0) token_ = new_token();
    if (!memory.worker(worker).owner.replace(0, token_)) {
      throw CommError(
          str("worker ", worker, " of the board is another process' or another Board's"));
    }
    books.owned = true;
    // An owner before this one has left its groups: others may still have been reading them.
    WorkerWords& words = memory.worker(worker);
    for (std::uint64_t slot = 0; slot < words.groups_used.load(); ++slot) clear(words, slot);
    words.groups_used.store(0);
    words.seats_used.store(0);
  }
  return books;
}

std::uint32_t BoardState::take_seat(int worker, std::string_view name) {
  const std::lock_guard lock(mutex_);
  Books& books = this->books(worker);
  WorkerWords& words = memory.worker(worker);
  if (books.free_seats.empty() && words.seats_used.load() == Board::kSeats) {
    throw CommError(str("replica ", name, " can't start: a process runs at most ", Board::kSeats,
                        " replicas and lanes at once, those of maps in maps and who runs them "
                        "among them"));
  }
  return take_index(books.free_seats, words.seats_used);
}

void BoardState::free_seat(int worker, std::uint32_t index) noexcept {
  const std::lock_guard lock(mutex_);
  books_[static_cast<std::size_t>(worker)].free_seats.insert(index);
}

std::shared_ptr<Board::Group> BoardState::hold_group(int worker, std::uint64_t key,
                                                     std::span<const GroupMember> members) {
  const std::lock_guard lock(mutex_);
  Books& books = this->books(worker);
  for (const GroupMember& member : members) {
    require(member.worker >= 0 && member.worker < memory.workers(), "a member's worker is ",
            member.worker, " on a board of ", memory.workers(), " workers");
  }
  auto found = books.groups.find(key);
  if (found == books.groups.end()) {
    require(key != 0, "a group's key on the board is not 0");
    if (books.groups.size() >= books.sweep_at) sweep(worker);
    found = books.groups.emplace(key, add_group(worker, key, members)).first;
  } else {
    WorkerWords& words = memory.worker(worker);
    const auto& [slot, offset, group] = found->second;
    const GroupView view{.slot = slot,
                         .version = words.versions[slot].load(),
                         .offset = offset,
                         .size = words.arena[offset].load()};
    if (!std::ranges::equal(read_members(words, view), members)) {
      throw CommError(str("two groups of worker ", worker, " have the key ", key, ": one of ",
                          view.size, " members and one of ", members.size()));
    }
  }
  Registered& registered = found->second;
  std::shared_ptr<Board::Group> group = registered.group.lock();
  if (group == nullptr) {
    MemberWords* const entry = members_at(memory.worker(worker), registered.offset);
    const auto size = static_cast<int>(members.size());
    group.reset(new Board::Group{shared_from_this(), worker, key, entry, size});
    registered.group = group;
    memory.worker(worker).held[registered.slot].store(1);
  }
  return group;
}

BoardState::Registered BoardState::add_group(int worker, std::uint64_t key,
                                             std::span<const GroupMember> members) {
  Books& books = this->books(worker);
  WorkerWords& words = memory.worker(worker);
  const std::uint64_t size = words_of(members.size());
  const auto has_slot = [&] {
    return !books.free_groups.empty() || words.groups_used.load() < Board::kGroups;
  };
  std::uint64_t offset = has_slot() ? books.arena.take(size) : Arena::kNone;
  if (offset == Arena::kNone) {
    sweep(worker);
    if (has_slot()) offset = books.arena.take(size);
  }
  if (offset == Arena::kNone) {
    const Arena::Left left = books.arena.left();
    throw CommError(str("no room for another group of replicas: one of ", members.size(), " takes ",
                        size * sizeof(Word), " bytes; those of this process hold ",
                        books.groups.size(), " of at most ", Board::kGroups, " groups, and of ",
                        Board::kArenaBytes, " bytes for these ", left.words * sizeof(Word),
                        " are free, ", left.in_one_piece * sizeof(Word), " in one piece"));
  }

  const std::uint32_t slot = take_index(books.free_groups, words.groups_used);
  const std::uint64_t version = words.versions[slot].load();
  words.versions[slot].store(version + 1);
  words.keys[slot].store(key);
  words.offsets[slot].store(offset);
  words.arena[offset].store(members.size());
  MemberWords* entry = members_at(words, offset);
  for (std::size_t i = 0; i < members.size(); ++i) {
    entry[i].id.store(members[i].id);
    for (std::size_t e = 0; e < members[i].elders.size(); ++e) {
      entry[i].elders[e].store(members[i].elders[e]);
    }
    entry[i].worker.store(static_cast<std::uint64_t>(members[i].worker));
    entry[i].arrived.store(0);
  }
  words.versions[slot].store(version + 2);
  return {.slot = slot, .offset = offset, .group = {}};
}

void BoardState::release_group(int worker, std::uint64_t key) noexcept {
  const std::lock_guard lock(mutex_);
  const auto& groups = books_[static_cast<std::size_t>(worker)].groups;
  const auto found = groups.find(key);
  // Someone may have come back to it since, and may even have released it.
  if (found == groups.end() || !found->second.group.expired()) return;
  memory.worker(worker).held[found->second.slot].store(0);
  if (!is_held_elsewhere(worker, key, found->second.offset)) remove_group(worker, key);
}

void BoardState::remove_group(int worker, std::uint64_t key) noexcept {
  Books& books = books_[static_cast<std::size_t>(worker)];
  WorkerWords& words = memory.worker(worker);
  const auto [slot, offset, group] = books.groups.at(key);
  const std::uint64_t size = words_of(words.arena[offset].load());
  clear(words, slot);
  books.arena.give(offset, size);
  books.free_groups.insert(slot);
  books.groups.erase(key);
}

// Whoever waits in a call of the group holds it, and reads from this entry whether this worker's
// members have arrived, maybe long after they have gone on and let go of it.
bool BoardState::is_held_elsewhere(int worker, std::uint64_t key, std::uint64_t offset) const {
  WorkerWords& words = memory.worker(worker);
  const MemberWords* entry = members_at(words, offset);
  const std::uint64_t size = words.arena[offset].load();
  std::set<int> workers;
  for (std::uint64_t i = 0; i < size; ++i) workers.insert(static_cast<int>(entry[i].worker.load()));
  workers.erase(worker);
  return std::ranges::any_of(workers, [&](int other) {
    const auto view = find_group(memory.worker(other), key);
    return view && view->held;
  });
}

void BoardState::sweep(int worker) noexcept {
  Books& books = books_[static_cast<std::size_t>(worker)];
  std::vector<std::uint64_t> unused;
  for (const auto& [key, registered] : books.groups) {
    const bool is_held = memory.worker(worker).held[registered.slot].load() != 0;
    if (!is_held && !is_held_elsewhere(worker, key, registered.offset)) {
      unused.push_back(key);
    }
  }
  for (const std::uint64_t key : unused) remove_group(worker, key);
  books.sweep_at = std::max<std::size_t>(64, 2 * books.groups.size());
}

}  // namespace lockstep
