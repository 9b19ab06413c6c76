#include "framework/watch/snapshot.h"

#include <algorithm>
#include <chrono>
#include <cstring>
#include <iterator>
#include <map>
#include <mutex>
#include <optional>
#include <set>
#include <string>
#include <utility>

#include "framework/base/errors.h"
#include "framework/base/text.h"

namespace lockstep::watch {
namespace {

// The bytes of a snapshot. A number is 7 bits a byte, the lowest first; all but its last byte have
// the highest bit. Ids, keys and fingerprints are 8 bytes. A text is its size and its bytes.
//
//   magic, serial
//   verdicts: their count; each: key, number, kind, settled, text
//   groups: their count; each: key, members: their count; each: id, worker, elders: count, each
//   workers: the first, their count; each:
//     left out, stopped
//     seats: their count; each: how many indices after the last, state, and unless it is unread:
//       version, id, parent, key, number, completed, children, finished, step, fingerprint, name,
//       what it does now, what it did last (each a number: 0 and a new text, or a text before it
//       from 1 on)
//     groups: their count; each: how many groups after the last, held, arrivals of own members
constexpr std::string_view kMagic = "LKBOARD1";

// The room for each part. The rest is for what every worker takes.
constexpr std::size_t kVerdictBytes = std::size_t{128} << 10;
constexpr std::size_t kGroupBytes = std::size_t{320} << 10;
constexpr std::size_t kSeatBytes = std::size_t{320} << 10;
constexpr std::size_t kLargestSeat = 2048;
constexpr int kWorkers = 8192;
// On the board, a group takes its members once for each worker: for all at most so many words.
constexpr std::uint64_t kEntries = std::uint64_t{8} << 20;
constexpr std::uint64_t kVersions = std::uint64_t{1} << 62;

constexpr int kReads = 8;

void put(std::string& bytes, std::uint64_t number) {
  for (; number >= 0x80U; number >>= 7U) bytes += static_cast<char>(0x80U | (number & 0x7FU));
  bytes += static_cast<char>(number);
}

void put_word(std::string& bytes, std::uint64_t word) {
  char raw[sizeof(word)];
  std::memcpy(raw, &word, sizeof(word));
  bytes.append(raw, sizeof(word));
}

void put_text(std::string& bytes, std::string_view text) {
  put(bytes, text.size());
  bytes += text;
}

class SnapshotWriter {
 public:
  SnapshotWriter(const BoardMemory& memory, int first, int count)
      : memory_(memory), first_(first), parts_(static_cast<std::size_t>(count)) {}

  // Seats before groups: a member that has gone on from a call had arrived before.
  std::string write() {
    std::string bytes(kMagic);
    put(bytes, memory_.common().snapshots.count() + 1);
    for (std::size_t i = 0; i < parts_.size(); ++i) add_seats(i);
    for (std::size_t i = 0; i < parts_.size(); ++i) gather_groups(i);
    std::string groups;
    add_groups(groups);
    add_verdicts(bytes);
    bytes += groups;
    put(bytes, static_cast<std::uint64_t>(first_));
    put(bytes, parts_.size());
    for (std::size_t i = 0; i < parts_.size(); ++i) {
      const Part& part = parts_[i];
      const bool stopped = memory_.worker(first_ + static_cast<int>(i)).stopped.load() != 0;
      bytes += part.left_out ? '\1' : '\0';
      bytes += stopped ? '\1' : '\0';
      put(bytes, part.seats);
      bytes += part.seat_bytes;
      put(bytes, part.groups);
      bytes += part.group_bytes;
    }
    return bytes;
  }

 private:
  struct Part {
    bool left_out = false;
    std::uint64_t seats = 0;
    std::string seat_bytes;
    std::uint64_t groups = 0;
    std::string group_bytes;
    std::size_t next_group = 0;
  };
  struct Holder {
    std::size_t part;
    bool held;
    std::vector<std::uint64_t> arrived;
  };
  struct Group {
    std::vector<GroupMember> members;
    std::vector<Holder> holders;
  };

  [[nodiscard]] WorkerWords& words_of(std::size_t part) const {
    return memory_.worker(first_ + static_cast<int>(part));
  }

  void add_seats(std::size_t at) {
    Part& part = parts_[at];
    const WorkerWords& words = words_of(at);
    std::uint32_t next = 0;
    for (const std::uint32_t index : words.used_seats()) {
      const Word& version = words.seats[index].version;
      const std::uint64_t before = version.load();
      const bool is_free = before % 2 == 0 && words.seats[index].state.load() == 0;
      if (is_free && version.load() == before) continue;
      if (seat_bytes_ + kLargestSeat > kSeatBytes) {
        part.left_out = true;
        return;
      }
      const std::size_t size = part.seat_bytes.size();
      put(part.seat_bytes, index - std::exchange(next, index + 1));
      add_seat(part.seat_bytes, {.worker = first_ + static_cast<int>(at), .index = index});
      seat_bytes_ += part.seat_bytes.size() - size;
      ++part.seats;
    }
  }

  void add_seat(std::string& bytes, SeatIndex place) {
    for (int i = 0; i < kReads; ++i) {
      const auto seat = read_seat(memory_, place);
      const auto texts = seat ? read_texts(memory_, *seat) : std::nullopt;
      if (!texts) continue;
      if (seat->state == SeatState::waiting) waited_in_.insert(seat->key);
      put(bytes, static_cast<std::uint64_t>(seat->state));
      put(bytes, seat->version);
      for (const std::uint64_t word : {seat->id, seat->parent, seat->key}) put_word(bytes, word);
      put(bytes, seat->number);
      put(bytes, seat->completed ? 1 : 0);
      put(bytes, seat->children);
      put(bytes, seat->finished);
      put(bytes, seat->step);
      put_word(bytes, seat->fingerprint);
      put_text(bytes, texts->name);
      add_text(bytes, seat->state == SeatState::running ? "" : texts->now);
      add_text(bytes, seat->finished == 0 ? "" : texts->last);
      return;
    }
    put(bytes, 0);
  }

  void add_text(std::string& bytes, const std::string& text) {
    const auto [known, is_new] = texts_.try_emplace(text, texts_.size() + 1);
    put(bytes, is_new ? 0 : known->second);
    if (is_new) put_text(bytes, text);
  }

  // Groups that other hosts may ask for, and those whose calls members wait in.
  [[nodiscard]] bool is_needed(std::uint64_t key, const std::vector<GroupMember>& members) const {
    return waited_in_.contains(key) || std::ranges::any_of(members, [&](const GroupMember& member) {
             return member.worker < first_ ||
                    static_cast<std::size_t>(member.worker - first_) >= parts_.size();
           });
  }

  void gather_groups(std::size_t at) {
    const std::uint32_t slots = group_slots(words_of(at));
    for (std::uint32_t slot = 0; slot < slots; ++slot) {
      bool was_read = false;
      for (int i = 0; i < kReads && !was_read; ++i) was_read = gather_group(at, slot);
      parts_[at].left_out |= !was_read;
    }
  }

  // False if the slot has changed meanwhile.
  bool gather_group(std::size_t at, std::uint32_t slot) {
    WorkerWords& words = words_of(at);
    const std::uint64_t key = words.keys[slot].load();
    if (key == 0) return true;
    const auto view = group_at(words, slot, key);
    if (!view) return false;
    std::vector<GroupMember> members = read_members(words, *view);
    if (members.size() != view->size) return false;
    if (!is_needed(key, members)) return true;
    Holder holder{.part = at, .held = view->held, .arrived = {}};
    for (std::size_t i = 0; i < members.size(); ++i) {
      if (members[i].worker != first_ + static_cast<int>(at)) continue;
      holder.arrived.push_back(members_at(words, view->offset)[i].arrived.load());
    }
    if (words.versions[slot].load() != view->version) return false;
    Group& group = groups_[key];
    if (group.holders.empty()) group.members = std::move(members);
    group.holders.push_back(std::move(holder));
    return true;
  }

  void add_groups(std::string& bytes) {
    std::string table;
    std::size_t count = 0;
    std::size_t size = 0;
    std::uint64_t entries = 0;
    for (const auto& [key, group] : groups_) {
      std::string members;
      put_word(members, key);
      add_members(members, group.members);
      std::vector<std::string> holders;
      std::size_t all = members.size();
      for (const Holder& holder : group.holders) {
        std::string& text = holders.emplace_back();
        put(text, count - parts_[holder.part].next_group);
        text += holder.held ? '\1' : '\0';
        for (const std::uint64_t arrived : holder.arrived) put(text, arrived);
        all += text.size();
      }
      const std::uint64_t words = entry_words(group.members.size()) * holders.size();
      const bool has_room = size + all <= kGroupBytes && entries + words <= kEntries;
      for (std::size_t i = 0; i < holders.size(); ++i) {
        Part& part = parts_[group.holders[i].part];
        if (!has_room) {
          part.left_out = true;
          continue;
        }
        part.group_bytes += holders[i];
        part.next_group = count + 1;
        ++part.groups;
      }
      if (!has_room) continue;
      table += members;
      size += all;
      entries += words;
      ++count;
    }
    put(bytes, count);
    bytes += table;
  }

  static void add_members(std::string& bytes, const std::vector<GroupMember>& members) {
    put(bytes, members.size());
    for (const GroupMember& member : members) {
      put_word(bytes, member.id);
      put(bytes, static_cast<std::uint64_t>(member.worker));
      const auto elders = std::ranges::find(member.elders, 0U) - member.elders.begin();
      put(bytes, static_cast<std::uint64_t>(elders));
      for (auto e = member.elders.begin(); e != member.elders.begin() + elders; ++e) {
        put_word(bytes, *e);
      }
    }
  }

  void add_verdicts(std::string& bytes) {
    std::string all;
    std::uint64_t count = 0;
    for (const PublishedWords& words : memory_.common().verdicts) {
      const auto found = read_published(words);
      if (!found || all.size() + sizeof(PublishedWords) > kVerdictBytes) continue;
      put_word(all, found->key);
      put_word(all, found->number);
      put(all, static_cast<std::uint64_t>(found->verdict.kind));
      put(all, found->verdict.settled ? 1 : 0);
      put_text(all, found->verdict.text);
      ++count;
    }
    put(bytes, count);
    bytes += all;
  }

  const BoardMemory& memory_;
  int first_;
  std::vector<Part> parts_;
  std::size_t seat_bytes_ = 0;
  std::set<std::uint64_t> waited_in_;
  std::map<std::string, std::uint64_t> texts_;
  std::map<std::uint64_t, Group> groups_;
};

class SnapshotReader {
 public:
  SnapshotReader(std::string_view bytes, int workers) : all_(bytes), bytes_(bytes) {
    check(bytes.size() <= Board::kSnapshot, "its size");
    check(bytes_.starts_with(kMagic), "its first bytes");
    bytes_.remove_prefix(kMagic.size());
    workers_ = static_cast<std::uint64_t>(workers);
  }

  Snapshot read() {
    Snapshot snapshot;
    snapshot.serial = number(kVersions, "its number");
    for (auto left = count(); left > 0; --left) snapshot.verdicts.push_back(verdict());
    for (auto left = count(); left > 0; --left) {
      keys_.push_back(word());
      check(keys_.back() != 0 && known_keys_.insert(keys_.back()).second, "a group's key");
      snapshot.groups.push_back(members());
    }
    const std::uint64_t first = number(workers_ - 1, "the first worker");
    const std::uint64_t workers = number(workers_ - first, "the number of workers");
    for (std::uint64_t i = 0; i < workers; ++i) {
      snapshot.workers.push_back(worker(static_cast<int>(first + i), snapshot.groups));
    }
    check(bytes_.empty(), "its end");
    return snapshot;
  }

 private:
  void check(bool holds, std::string_view what) const {
    if (holds) return;
    throw DataError(str("a snapshot of another host's part of the board is damaged: ", what,
                        " at byte ", all_.size() - bytes_.size(), " of ", all_.size()));
  }

  std::uint64_t number(std::uint64_t largest, std::string_view what) {
    std::uint64_t value = 0;
    for (unsigned shift = 0;; shift += 7) {
      check(!bytes_.empty() && shift < 64, what);
      const auto byte = static_cast<unsigned char>(bytes_.front());
      bytes_.remove_prefix(1);
      const std::uint64_t bits = byte & 0x7FU;
      check(bits << shift >> shift == bits, what);
      value |= bits << shift;
      if (byte < 0x80U) break;
    }
    check(value <= largest, what);
    return value;
  }
  bool flag(std::string_view what) { return number(1, what) != 0; }
  // Whatever is counted takes a byte at least.
  std::uint64_t count() { return number(bytes_.size(), "a count"); }

  std::string_view take(std::size_t size, std::string_view what) {
    check(size <= bytes_.size(), what);
    const std::string_view taken = bytes_.substr(0, size);
    bytes_.remove_prefix(size);
    return taken;
  }
  std::uint64_t word() {
    std::uint64_t value = 0;
    std::memcpy(&value, take(sizeof(value), "a word").data(), sizeof(value));
    return value;
  }
  std::string_view text(std::size_t longest) {
    return take(number(longest, "the length of a text"), "a text");
  }
  std::string_view tabled_text() {
    const std::uint64_t known = number(texts_.size(), "a text's place");
    if (known == 0) texts_.push_back(text(CallRecord::kShown));
    return known == 0 ? texts_.back() : texts_[known - 1];
  }

  PublishedVerdict verdict() {
    PublishedVerdict found;
    found.key = word();
    found.number = word();
    const auto last = static_cast<std::uint64_t>(ErrorKind::aborted);
    found.verdict.kind = static_cast<ErrorKind>(number(last, "a verdict's kind"));
    found.verdict.settled = flag("whether a verdict is settled");
    found.verdict.text = text(sizeof(PublishedWords));
    return found;
  }

  std::vector<GroupMember> members() {
    std::vector<GroupMember> members;
    for (auto left = count(); left > 0; --left) {
      GroupMember member{.id = word()};
      member.worker = static_cast<std::int32_t>(number(workers_ - 1, "a member's worker"));
      const auto elders = number(member.elders.size(), "a member's elders");
      for (std::size_t e = 0; e < elders; ++e) member.elders[e] = word();
      members.push_back(member);
    }
    return members;
  }

  ShownWorker worker(int number_of_it, const std::vector<std::vector<GroupMember>>& groups) {
    ShownWorker shown;
    shown.worker = number_of_it;
    shown.left_out = flag("what is left out");
    shown.stopped = flag("whether a worker is stopped");
    std::uint64_t next = 0;
    for (auto left = count(); left > 0; --left) {
      const std::uint64_t index = next + number(Board::kSeats, "a seat's index");
      check(index < Board::kSeats, "a seat's index");
      next = index + 1;
      shown.seats.push_back(
          seat({.worker = shown.worker, .index = static_cast<std::uint32_t>(index)}));
    }
    next = 0;
    std::uint64_t own_entries = 0;
    for (auto left = count(); left > 0; --left) {
      const std::uint64_t index = next + number(groups.size(), "a group's index");
      check(index < groups.size(), "a group's index");
      next = index + 1;
      own_entries += entry_words(groups[index].size());
      check(own_entries <= WorkerWords::kArenaWords, "a worker's groups");
      ShownGroup& group = shown.groups.emplace_back();
      group.key = keys_[index];
      group.members = index;
      group.held = flag("whether a group is held");
      for (const GroupMember& member : groups[index]) {
        if (member.worker == shown.worker) group.arrived.push_back(number(kVersions, "arrivals"));
      }
    }
    entries_ += own_entries;
    check(entries_ <= kEntries, "the workers' groups");
    return shown;
  }

  ShownSeat seat(SeatIndex place) {
    ShownSeat shown;
    shown.index = place.index;
    SeatView& view = shown.view;
    view.place = place;
    view.state = static_cast<SeatState>(
        number(static_cast<std::uint64_t>(SeatState::threw), "a seat's state"));
    shown.is_unread = view.state == SeatState::free;
    if (shown.is_unread) return shown;
    view.version = number(kVersions, "a seat's version");
    check(view.version >= 2 && view.version % 2 == 0, "a seat's version");
    view.id = word();
    check(view.id != 0, "a seat's member");
    view.parent = word();
    view.key = word();
    view.number = number(kVersions, "a call's number");
    view.completed = flag("whether a call was completed");
    view.children = number(std::uint64_t{1} << 31U, "the members of a map");
    view.finished = number(kVersions, "how many calls were finished");
    view.step = number(kVersions, "a step");
    view.fingerprint = word();
    shown.name = text(sizeof(SeatWords::name) - 1);
    shown.now = tabled_text();
    shown.last = tabled_text();
    return shown;
  }

  std::string_view all_;
  std::string_view bytes_;
  std::uint64_t workers_ = 0;
  std::uint64_t entries_ = 0;
  std::vector<std::uint64_t> keys_;
  std::set<std::uint64_t> known_keys_;
  std::vector<std::string_view> texts_;
};

// Makes a shown seat unreadable. Its parent goes, so that nobody counts it among the children.
void hide_shown(WorkerWords& words, std::uint32_t index) {
  Word& version = words.seats[index].version;
  version.store(version.load() | 1U);
  words.parents[index].store(0);
}

void free_shown(WorkerWords& words, std::uint32_t index) {
  SeatWords& seat = words.seats[index];
  if (seat.version.load() % 2 == 0 && seat.state.load() == 0) return;
  hide_shown(words, index);
  words.ids[index].store(0);
  seat.state.store(0);
  seat.version.store(seat.version.load() + 1);
}

void write_shown(WorkerWords& words, const ShownSeat& shown) {
  SeatWords& seat = words.seats[shown.index];
  const SeatView& view = shown.view;
  if (seat.version.load() == view.version) return;
  hide_shown(words, shown.index);
  words.ids[shown.index].store(view.id);
  seat.state.store(static_cast<std::uint64_t>(view.state));
  seat.key.store(view.key);
  seat.number.store(view.number);
  seat.completed.store(view.completed ? 1 : 0);
  seat.children.store(view.children);
  seat.finished.store(view.finished);
  seat.step.store(view.step);
  seat.last.store(0);
  write_text(seat.name, std::size(seat.name), shown.name);
  write_text(seat.records[0].text, std::size(seat.records[0].text), shown.last);
  seat.records[1].fingerprint.store(view.fingerprint);
  write_text(seat.records[1].text, std::size(seat.records[1].text), shown.now);
  words.parents[shown.index].store(view.parent);
  seat.version.store(view.version);
}

}  // namespace

Snapshot read_snapshot(std::string_view bytes, int workers) {
  return SnapshotReader(bytes, workers).read();
}

std::string Board::snapshot(int first_worker, int count) const {
  const BoardMemory& memory = state_->memory;
  require(first_worker >= 0 && count >= 1 && count <= kWorkers &&
              count <= memory.workers() - first_worker,
          "a snapshot of ", count, " workers from ", first_worker, " on, of ", memory.workers(),
          "; it shows at most ", kWorkers);
  return SnapshotWriter(memory, first_worker, count).write();
}

void Board::show(std::string_view snapshot, std::uint64_t answers) {
  state_->show(read_snapshot(snapshot, state_->memory.workers()), answers);
}

void BoardState::show(const Snapshot& snapshot, std::uint64_t answers) {
  const std::lock_guard lock(mutex_);
  for (const ShownWorker& shown : snapshot.workers) {
    if (memory.is_local(shown.worker)) {
      throw DataError(str("a snapshot shows worker ", shown.worker, ", which this host runs"));
    }
    static_cast<void>(books(shown.worker));
    WorkerWords& words = memory.worker(shown.worker);
    if (words.serial.load() >= snapshot.serial) return;
    for (const ShownSeat& seat : shown.seats) {
      // A seat that was hidden may come back as it was.
      const std::uint64_t version = words.seats[seat.index].version.load();
      if (seat.is_unread || seat.view.version >= version - version % 2) continue;
      throw DataError(str("a snapshot shows seat ", seat.index, " of worker ", shown.worker,
                          " in version ", seat.view.version, ", which came before ", version));
    }
  }
  for (const ShownWorker& shown : snapshot.workers) {
    WorkerWords& words = memory.worker(shown.worker);
    const Writing writing(words.part);
    if (shown.left_out) words.left_out.store(1);
    show_seats(shown);
    const bool has_room = show_groups(shown, snapshot);
    words.left_out.store(shown.left_out || !has_room ? 1 : 0);
    words.stopped.store(shown.stopped ? 1 : 0);
    words.serial.store(snapshot.serial);
    const auto now = std::chrono::steady_clock::now().time_since_epoch();
    words.shown_at.store(static_cast<std::uint64_t>(
        std::chrono::duration_cast<std::chrono::milliseconds>(now).count()));
    words.answered.store(std::max(words.answered.load(), answers + 1));
  }
  for (const PublishedVerdict& found : snapshot.verdicts) {
    if (published(memory.common(), found.key, found.number)) continue;
    publish(memory.common(), found.key, found.number, found.verdict);
  }
}

void BoardState::show_seats(const ShownWorker& shown) {
  WorkerWords& words = memory.worker(shown.worker);
  if (!shown.seats.empty()) {
    const std::uint64_t used = std::uint64_t{shown.seats.back().index} + 1;
    words.seats_used.store(std::max(words.seats_used.load(), used));
  }
  auto next = shown.seats.begin();
  for (const std::uint32_t index : words.used_seats()) {
    const bool is_listed = next != shown.seats.end() && next->index == index;
    if (is_listed ? next->is_unread : shown.left_out) {
      hide_shown(words, index);
    } else if (is_listed) {
      write_shown(words, *next);
    } else {
      free_shown(words, index);
    }
    if (is_listed) ++next;
  }
}

bool BoardState::show_groups(const ShownWorker& shown, const Snapshot& snapshot) {
  Books& books = this->books(shown.worker);
  WorkerWords& words = memory.worker(shown.worker);
  std::set<std::uint64_t> gone;
  if (!shown.left_out) {
    for (const auto& [key, registered] : books.groups) gone.insert(key);
    for (const ShownGroup& group : shown.groups) gone.erase(group.key);
  }
  for (const std::uint64_t key : gone) remove_group(shown.worker, key);
  bool has_room = true;
  for (const ShownGroup& group : shown.groups) {
    const std::vector<GroupMember>& members = snapshot.groups[group.members];
    auto found = books.groups.find(group.key);
    if (found != books.groups.end()) {
      const auto view = group_at(words, found->second.slot, group.key);
      if (!view || read_members(words, *view) != members) {
        remove_group(shown.worker, group.key);
        found = books.groups.end();
      }
    }
    if (found == books.groups.end()) {
      auto placed = place_group(shown.worker, group.key, members);
      has_room = has_room && placed;
      if (!placed) continue;
      found = books.groups.emplace(group.key, *std::move(placed)).first;
    }
    MemberWords* const entry = members_at(words, found->second.offset);
    auto arrived = group.arrived.begin();
    for (std::size_t i = 0; i < members.size(); ++i) {
      if (members[i].worker == shown.worker) entry[i].arrived.store(*arrived++);
    }
    words.held[found->second.slot].store(group.held ? 1 : 0);
  }
  return has_room;
}

}  // namespace lockstep::watch
