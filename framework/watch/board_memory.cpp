#include "framework/watch/board_memory.h"

#include <array>
#include <bit>
#include <chrono>
#include <iterator>
#include <utility>

#include <sys/mman.h>
#include <sys/stat.h>

#include "framework/base/errors.h"
#include "framework/base/limits.h"
#include "framework/base/text.h"

namespace lockstep::watch {
namespace {

// A writer that was interrupted halfway is not waited for: a search tries again later.
constexpr int kTries = 64;

using Chars = std::array<char, sizeof(Word)>;

static_assert(sizeof(WorkerWords) % kPage == 0 && sizeof(PublicWords) % kPage == 0);

void clear(WorkerWords& words, std::uint64_t slot) {
  const Writing writing(words.versions[slot]);
  words.keys[slot].store(0);
  if (words.holds[slot].load() % 2 != 0) words.holds[slot].count();
}

// The least index that is free, from `freed` or the first that was never used.
std::uint32_t take_index(std::set<std::uint32_t>& freed, Word& used) {
  if (!freed.empty()) return freed.extract(freed.begin()).value();
  const std::uint64_t index = used.load();
  used.store(index + 1);
  return static_cast<std::uint32_t>(index);
}

}  // namespace

void write_text(std::span<Word> words, std::string_view text) noexcept {
  constexpr std::string_view kCut = "...";
  const std::size_t capacity = words.size_bytes() - 1;
  text = text.substr(0, text.find('\0'));
  std::string_view tail;
  if (text.size() > capacity) {
    tail = kCut;
    text = beginning(text, capacity - kCut.size());
  }
  for (Word& target : words) {
    Chars chars{};
    const std::size_t of_text = text.copy(chars.data(), chars.size());
    const std::size_t of_tail = tail.copy(chars.data() + of_text, chars.size() - of_text);
    text.remove_prefix(of_text);
    tail.remove_prefix(of_tail);
    target.store(std::bit_cast<std::uint64_t>(chars));
    if (of_text + of_tail < sizeof(Word)) return;  // it ends with a zero
  }
}

std::string read_text(std::span<const Word> words) {
  std::string text;
  for (const Word& each : words) {
    const auto chars = std::bit_cast<Chars>(each.load());
    const auto end = std::ranges::find(chars, '\0');
    text.append(chars.begin(), end);
    if (end != chars.end()) break;
  }
  return text;
}

std::uint64_t now_ms() {
  const auto now = std::chrono::steady_clock::now().time_since_epoch();
  return static_cast<std::uint64_t>(
      std::chrono::duration_cast<std::chrono::milliseconds>(now).count());
}

BoardMemory::BoardMemory(int workers, int copies)
    : workers_(workers), boards_(std::max(copies, 1)), has_copies_(copies > 0) {
  const std::size_t bytes =
      Board::bytes_for(workers) + static_cast<std::size_t>(boards_ - 1) * sizeof(PublicWords);
  data_ = map_private(bytes);
  // A word that is touched takes a page, not 2 MiB. Where the system knows no huge pages this fails
  // and nothing is lost.
  static_cast<void>(::madvise(data_.get(), bytes, MADV_NOHUGEPAGE));
}

BoardMemory::BoardMemory(int workers, int descriptor, std::size_t offset) : workers_(workers) {
  const std::size_t end = offset + Board::bytes_for(workers);
  struct stat status {};
  require_done<CommError>(::fstat(descriptor, &status) == 0,
                          "the board of pending calls: descriptor ", descriptor, " can't be read");
  require<CommError>(status.st_size >= 0 && static_cast<std::size_t>(status.st_size) >= end,
                     "the board of pending calls: descriptor ", descriptor, " has ", status.st_size,
                     " bytes; a board of ", workers, " workers at ", offset, " ends at ", end);
  data_ = map_shared(descriptor, offset, Board::bytes_for(workers));
}

WorkerWords& BoardMemory::worker(int worker) const noexcept {
  std::byte* words = data_.get() + static_cast<std::size_t>(boards_) * sizeof(PublicWords) +
                     static_cast<std::size_t>(worker) * sizeof(WorkerWords);
  return *reinterpret_cast<WorkerWords*>(words);
}

bool BoardMemory::is_local(int worker) const noexcept {
  const auto first = common().first_local.load();
  const auto number = static_cast<std::uint64_t>(worker);
  return !has_others() || (number >= first && number - first < common().local_workers.load());
}

std::optional<SeatView> read_seat(const BoardMemory& memory, SeatIndex place) {
  const WorkerWords& worker = memory.worker(place.worker);
  const SeatWords& seat = worker.seats[place.index];
  for (int i = 0; i < kTries; ++i) {
    SeatView view{.place = place};
    view.version = seat.version.load();
    if (view.version % 2 != 0) continue;
    view.state = static_cast<SeatState>(seat.state.load());
    view.id = worker.ids[place.index].load();
    view.parent = worker.parents[place.index].load();
    view.key = seat.key.load();
    view.number = seat.number.load();
    view.completed = seat.completed.load() != 0;
    view.children = seat.children.load();
    view.finished = seat.finished.load();
    view.step = seat.step.load();
    view.fingerprint = seat.records[1 - view.finished % 2].fingerprint.load();
    if (seat.version.load() != view.version) continue;
    if (view.state == SeatState::free) break;
    return view;
  }
  return std::nullopt;
}

std::optional<SeatTexts> read_texts(const BoardMemory& memory, const SeatView& view) {
  const SeatWords& seat = memory.worker(view.place.worker).seats[view.place.index];
  if (seat.version.load() != view.version) return std::nullopt;
  const std::size_t last = view.finished % 2;
  SeatTexts texts{.name = read_text(seat.name),
                  .now = read_text(seat.records[1 - last].text),
                  .last = read_text(seat.records[last].text)};
  if (seat.version.load() != view.version) return std::nullopt;
  return texts;
}

std::uint32_t group_slots(const WorkerWords& worker) noexcept {
  return static_cast<std::uint32_t>(
      std::min<std::uint64_t>(worker.groups_used.load(), Board::kGroups));
}

std::optional<GroupView> find_group(const WorkerWords& worker, std::uint64_t key) {
  for (std::uint32_t slot = 0; slot < group_slots(worker); ++slot) {
    for (int i = 0; i < kTries && worker.keys[slot].load() == key; ++i) {
      GroupView view{.slot = slot, .version = worker.versions[slot].load()};
      if (view.version % 2 != 0 || worker.keys[slot].load() != key) continue;
      view.offset = worker.offsets[slot].load();
      view.held = worker.holds[slot].load() % 2 != 0;
      if (view.offset >= WorkerWords::kArenaWords) continue;
      view.size = worker.arena[view.offset].load();
      // Another host may have said anything.
      if (view.size >= WorkerWords::kArenaWords ||
          view.offset + entry_words(view.size) > WorkerWords::kArenaWords) {
        continue;
      }
      if (worker.versions[slot].load() == view.version) return view;
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
    std::ranges::transform(words[i].elders, members[i].elders.begin(), &Word::load);
  }
  if (worker.versions[group.slot].load() != group.version) members.clear();
  return members;
}

void publish(FindingRing& ring, const Board::Finding& finding) noexcept {
  const std::uint64_t order = ring.begun.count() + 1;
  FindingWords& place = ring.kept[order % FindingRing::kKept];
  const std::uint64_t version = place.version.load();
  // Another writer has come round the ring and is here: too many findings for one more to matter.
  if (version % 2 != 0 || !place.version.replace(version, version + 1)) return;
  place.order.store(order);
  place.key.store(finding.key);
  place.number.store(finding.number);
  place.kind.store(static_cast<std::uint64_t>(finding.verdict.kind));
  place.settled.store(finding.verdict.settled ? 1 : 0);
  place.at.store(now_ms());
  write_text(place.text, finding.verdict.text);
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
                             .verdict = {.kind = static_cast<ErrorKind>(kind),
                                         .text = read_text(place.text),
                                         .settled = place.settled.load() != 0}};
    if (place.version.load() == version) found = std::move(finding);
  }
  return found;
}

std::optional<Board::Verdict> published(const BoardMemory& memory, std::uint64_t key,
                                        std::uint64_t number) {
  for (int board = 0; board < memory.boards(); ++board) {
    auto found = published(memory.common(board).verdicts, key, number, Which::first);
    if (found) return std::move(found->verdict);
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

BoardState::BoardState(BoardMemory its_memory)
    : memory(std::move(its_memory)), books_(static_cast<std::size_t>(memory.workers())) {}

BoardState::~BoardState() {
  for (int worker = 0; worker < memory.workers(); ++worker) {
    if (books_[static_cast<std::size_t>(worker)].owned) memory.worker(worker).owned.store(0);
  }
}

BoardState::Books& BoardState::books(int worker) {
  require(worker >= 0 && worker < memory.workers(), "a board of ", memory.workers(),
          " workers has no worker ", worker);
  Books& books = books_[static_cast<std::size_t>(worker)];
  if (!books.owned) {
    WorkerWords& words = memory.worker(worker);
    require<CommError>(words.owned.replace(0, 1), "worker ", worker,
                       " of the board is another process' or another Board's");
    books.owned = true;
    // An owner before this one has left its groups: others may still have been reading them.
    for (std::uint64_t slot = 0; slot < words.groups_used.load(); ++slot) clear(words, slot);
    words.groups_used.store(0);
    words.seats_used.store(0);
  }
  return books;
}

std::uint32_t BoardState::take_seat(int worker, std::string_view name) {
  const MutexLock lock(mutex_);
  Books& books = this->books(worker);
  WorkerWords& words = memory.worker(worker);
  require<CommError>(!books.free_seats.empty() || words.seats_used.load() != Board::kSeats,
                     "replica ", name, " can't start: a process runs at most ", Board::kSeats,
                     " replicas and lanes at once, those of maps in maps and who runs them "
                     "among them");
  return take_index(books.free_seats, words.seats_used);
}

void BoardState::free_seat(int worker, std::uint32_t index) noexcept {
  const MutexLock lock(mutex_);
  auto& free_seats = books_[static_cast<std::size_t>(worker)].free_seats;
  (void)thrown_by([&] { free_seats.insert(index); });  // without memory the seat is lost
}

std::shared_ptr<Board::Group> BoardState::hold_group(int worker, std::uint64_t key,
                                                     std::span<const GroupMember> members) {
  const MutexLock lock(mutex_);
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
    require<CommError>(std::ranges::equal(read_members(words, view), members),
                       "two groups of worker ", worker, " have the key ", key, ": one of ",
                       view.size, " members and one of ", members.size());
  }
  Registered& registered = found->second;
  std::shared_ptr<Board::Group> group = registered.group.lock();
  if (group == nullptr) {
    MemberWords* const entry = members_at(memory.worker(worker), registered.offset);
    const auto size = static_cast<int>(members.size());
    group = std::make_shared<Board::Group>();
    group->state = shared_from_this();
    group->worker = worker;
    group->key = key;
    group->entry = entry;
    group->size = size;
    registered.group = group;
    memory.worker(worker).holds[registered.slot].count();
  }
  return group;
}

BoardState::Registered BoardState::add_group(int worker, std::uint64_t key,
                                             std::span<const GroupMember> members) {
  Books& books = this->books(worker);
  WorkerWords& words = memory.worker(worker);
  const std::uint64_t size = entry_words(members.size());
  const auto take_room = [&] {
    const bool has_slot = !books.free_groups.empty() || words.groups_used.load() < Board::kGroups;
    return has_slot ? books.arena.take(size) : Arena::kNone;
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
                        books.groups.size(), " of at most ", Board::kGroups, " groups, and of ",
                        Board::kArenaBytes, " bytes for these ", left.words * sizeof(Word),
                        " are free, ", left.in_one_piece * sizeof(Word), " in one piece"));
  }

  const std::uint32_t slot = take_index(books.free_groups, words.groups_used);
  const Writing writing(words.versions[slot]);
  words.arena_used.store(std::max(words.arena_used.load(), offset + size));
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
  return {.slot = slot, .offset = offset, .group = {}};
}

void BoardState::release_group(int worker, std::uint64_t key) noexcept {
  const MutexLock lock(mutex_);
  auto& groups = books_[static_cast<std::size_t>(worker)].groups;
  const auto found = groups.find(key);
  // Someone may have come back to it since, and may even have released it.
  if (found == groups.end() || !found->second.group.expired()) return;
  memory.worker(worker).holds[found->second.slot].count();
  if (!is_held_elsewhere(worker, key, found->second)) remove_group(worker, key);
}

void BoardState::remove_group(int worker, std::uint64_t key) noexcept {
  Books& books = books_[static_cast<std::size_t>(worker)];
  WorkerWords& words = memory.worker(worker);
  const auto [slot, offset, group] = books.groups.at(key);
  const std::uint64_t size = entry_words(words.arena[offset].load());
  clear(words, slot);
  // Without memory for the books the room is lost.
  (void)thrown_by([&, slot = slot, offset = offset] {
    books.arena.give(offset, size);
    books.free_groups.insert(slot);
  });
  books.groups.erase(key);
}

// A member that waits in a call of the group holds it. It reads from this entry whether this
// worker's members have arrived, maybe long after they have gone on and let go of it.
bool BoardState::is_held_elsewhere(int worker, std::uint64_t key,
                                   const Registered& registered) const noexcept {
  WorkerWords& words = memory.worker(worker);
  const MemberWords* entry = members_at(words, registered.offset);
  const std::uint64_t size = words.arena[registered.offset].load();
  const std::uint32_t slot = registered.slot;
  int last = worker;  // mostly a worker's members are side by side
  return std::any_of(entry, entry + size, [&](const MemberWords& member) {
    const auto other = static_cast<int>(member.worker.load());
    if (other == worker || std::exchange(last, other) == other) return false;
    if (!memory.is_local(other)) return words.let_go[slot].load() != words.holds[slot].load();
    const auto view = find_group(memory.worker(other), key);
    return view && view->held;
  });
}

void BoardState::sweep(int worker) noexcept {
  Books& books = books_[static_cast<std::size_t>(worker)];
  const WorkerWords& words = memory.worker(worker);
  bool keeps_some = false;
  for (auto next = books.groups.begin(); next != books.groups.end();) {
    const auto& [key, registered] = *next++;  // which may be removed
    if (words.holds[registered.slot].load() % 2 != 0) continue;
    const bool keeps = is_held_elsewhere(worker, key, registered);
    keeps_some |= keeps;
    if (!keeps) remove_group(worker, key);
  }
  // For the next time.
  if (keeps_some && memory.has_others()) memory.common().readings_wanted.count();
  books.sweep_at = std::max<std::size_t>(64, 2 * books.groups.size());
}

}  // namespace lockstep::watch
