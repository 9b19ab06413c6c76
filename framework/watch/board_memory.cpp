#include "framework/watch/board_memory.h"

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <iterator>
#include <utility>

#include <sys/mman.h>
#include <sys/stat.h>

#include "framework/base/errors.h"
#include "framework/base/pages.h"
#include "framework/base/text.h"

namespace lockstep {
namespace {

// A writer that was interrupted halfway is not waited for: a search tries again later.
constexpr int kTries = 64;

static_assert(sizeof(WorkerWords) % kPage == 0 && sizeof(PublicWords) % kPage == 0);

}  // namespace

void write_text(Word* words, std::size_t count, std::string_view text) noexcept {
  constexpr std::string_view kCut = "...";
  const std::size_t capacity = count * sizeof(Word) - 1;
  text = text.substr(0, text.find('\0'));
  std::string_view tail;
  if (text.size() > capacity) {
    tail = kCut;
    std::size_t end = capacity - kCut.size();
    while (end > 0 && (static_cast<unsigned char>(text[end]) & 0xC0U) == 0x80U) --end;  // UTF-8
    text = text.substr(0, end);
  }
  for (;; ++words) {
    char chars[sizeof(Word)] = {};
    const std::size_t of_text = text.copy(chars, sizeof(Word));
    const std::size_t of_tail = tail.copy(chars + of_text, sizeof(Word) - of_text);
    text.remove_prefix(of_text);
    tail.remove_prefix(of_tail);
    std::uint64_t word = 0;
    std::memcpy(&word, chars, sizeof(word));
    words->store(word);
    if (of_text + of_tail < sizeof(Word)) return;  // it ends with a zero
  }
}

std::string read_text(const Word* words, std::size_t count) {
  std::string text;
  for (std::size_t i = 0; i < count; ++i) {
    const std::uint64_t word = words[i].load();
    char chars[sizeof(Word)];
    std::memcpy(chars, &word, sizeof(word));
    const auto end = static_cast<std::size_t>(std::find(chars, chars + sizeof(Word), '\0') - chars);
    text.append(chars, end);
    if (end != sizeof(Word)) break;
  }
  return text;
}

BoardMemory::BoardMemory(int workers)
    : workers_(workers), data_(map_private(Board::bytes_for(workers))) {
  // A word that is touched takes a page, not 2 MiB. Where the system knows no huge pages this fails
  // and nothing is lost.
  static_cast<void>(::madvise(data_.get(), Board::bytes_for(workers), MADV_NOHUGEPAGE));
}

BoardMemory::BoardMemory(int workers, int descriptor, std::size_t offset) : workers_(workers) {
  const std::size_t end = offset + Board::bytes_for(workers);
  struct stat status {};
  if (::fstat(descriptor, &status) != 0) {
    throw CommError(str("the board of pending calls: descriptor ", descriptor,
                        " can't be read: ", std::strerror(errno)));
  }
  if (status.st_size < 0 || static_cast<std::size_t>(status.st_size) < end) {
    throw CommError(str("the board of pending calls: descriptor ", descriptor, " has ",
                        status.st_size, " bytes; a board of ", workers, " workers at ", offset,
                        " ends at ", end));
  }
  data_ = map_shared(descriptor, offset, Board::bytes_for(workers));
}

WorkerWords& BoardMemory::worker(int worker) const noexcept {
  std::byte* words =
      data_.get() + sizeof(PublicWords) + static_cast<std::size_t>(worker) * sizeof(WorkerWords);
  return *reinterpret_cast<WorkerWords*>(words);
}

PublicWords& BoardMemory::common() const noexcept {
  return *reinterpret_cast<PublicWords*>(data_.get());
}

std::optional<SeatView> read_seat(const WorkerWords& worker, std::uint32_t index) {
  const SeatWords& seat = worker.seats[index];
  for (int i = 0; i < kTries; ++i) {
    SeatView view;
    view.version = seat.version.load();
    if (view.version % 2 != 0) continue;
    view.state = static_cast<SeatState>(seat.state.load());
    view.id = worker.ids[index].load();
    view.parent = worker.parents[index].load();
    view.key = seat.key.load();
    view.number = seat.number.load();
    view.completed = seat.completed.load() != 0;
    view.children = seat.children.load();
    view.finished = seat.finished.load();
    view.fingerprint = seat.records[1 - seat.last.load() % 2].fingerprint.load();
    if (seat.version.load() == view.version) return view;
  }
  return std::nullopt;
}

std::optional<SeatTexts> read_texts(const WorkerWords& worker, std::uint32_t index,
                                    std::uint64_t version) {
  const SeatWords& seat = worker.seats[index];
  if (seat.version.load() != version) return std::nullopt;
  const std::size_t last = seat.last.load() % 2;
  const auto text_of = [&](std::size_t record) {
    return read_text(seat.records[record].text, std::size(seat.records[record].text));
  };
  SeatTexts texts{.name = read_text(seat.name, std::size(seat.name)),
                  .now = text_of(1 - last),
                  .last = text_of(last)};
  if (seat.version.load() != version) return std::nullopt;
  return texts;
}

std::optional<GroupView> find_group(const WorkerWords& worker, std::uint64_t key) {
  const auto used = static_cast<std::uint32_t>(
      std::min<std::uint64_t>(worker.groups_used.load(), Board::kGroups));
  for (std::uint32_t slot = 0; slot < used; ++slot) {
    if (worker.keys[slot].load() != key) continue;
    for (int i = 0; i < kTries; ++i) {
      GroupView view;
      view.slot = slot;
      view.version = worker.versions[slot].load();
      if (view.version % 2 != 0) continue;
      if (worker.keys[slot].load() != key) break;
      view.offset = worker.offsets[slot].load();
      view.held = worker.held[slot].load() != 0;
      if (view.offset >= WorkerWords::kArenaWords) continue;
      view.size = worker.arena[view.offset].load();
      const bool same = worker.versions[slot].load() == view.version;
      if (same) return view;
    }
  }
  return std::nullopt;
}

MemberWords* members_at(WorkerWords& worker, std::uint64_t offset) noexcept {
  return reinterpret_cast<MemberWords*>(&worker.arena[offset + 1]);
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

void publish(PublicWords& words, std::uint64_t key, std::uint64_t number,
             const Board::Verdict& verdict) noexcept {
  const std::uint64_t order = words.begun.count() + 1;
  PublishedWords& place = words.verdicts[order % PublicWords::kKept];
  const std::uint64_t version = place.version.load();
  // Another writer has come round the ring and is here: too many verdicts for one more to matter.
  if (version % 2 != 0 || !place.version.replace(version, version + 1)) return;
  place.order.store(order);
  place.key.store(key);
  place.number.store(number);
  place.kind.store(static_cast<std::uint64_t>(verdict.kind));
  place.settled.store(verdict.settled ? 1 : 0);
  write_text(place.text, std::size(place.text), verdict.text);
  place.version.store(version + 2);
  words.published.count();
}

std::optional<Board::Verdict> published(const PublicWords& words, std::uint64_t key,
                                        std::uint64_t number) {
  std::optional<Board::Verdict> found;
  std::uint64_t first = ~std::uint64_t{0};
  for (const PublishedWords& place : words.verdicts) {
    const std::uint64_t version = place.version.load();
    const std::uint64_t order = place.order.load();
    if (order == 0 || order > first || version % 2 != 0) continue;
    if (place.key.load() != key || place.number.load() != number) continue;
    Board::Verdict verdict{.kind = static_cast<Board::Verdict::Kind>(place.kind.load()),
                           .text = read_text(place.text, std::size(place.text)),
                           .settled = place.settled.load() != 0};
    if (place.version.load() != version) continue;
    first = order;
    found = std::move(verdict);
  }
  return found;
}

}  // namespace lockstep
