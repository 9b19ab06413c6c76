#include "framework/watch/board.h"

#include <algorithm>
#include <utility>

#include "framework/base/text.h"
#include "framework/watch/board_memory.h"

namespace lockstep::watch {
namespace {

// While it lives, a seat's own thread writes the words of the seat.
struct SeatWriting : Writing {
  SeatWriting(SeatWords& words, SeatState state) noexcept : Writing(words.version) {
    words.state.store(static_cast<std::uint64_t>(state));
  }
};

// Writes what the member does now.
void write_now(SeatWords& words, std::uint64_t fingerprint, std::string_view text) noexcept {
  RecordWords& record = words.records[1 - words.finished.load() % 2];
  record.fingerprint.store(fingerprint);
  write_text(record.text, text);
}

}  // namespace

Board::Board(int workers) : state_(std::make_shared<BoardState>(BoardMemory(workers))) {}

Board::Board(int workers, int descriptor, std::size_t offset)
    : state_(std::make_shared<BoardState>(BoardMemory(workers, descriptor, offset))) {}

std::size_t Board::bytes_for(int workers) {
  // Addresses, not memory; a job of that many workers on one host is a mistake.
  constexpr int kMaxWorkers = 65536;
  require(workers >= 1 && workers <= kMaxWorkers, "the replicas of a host run on 1 to ",
          kMaxWorkers, " workers, not on ", workers);
  return sizeof(PublicWords) + static_cast<std::size_t>(workers) * sizeof(WorkerWords);
}

std::shared_ptr<Board::Group> Board::group(int worker, std::uint64_t key,
                                           std::span<const GroupMember> members) {
  return state_->hold_group(worker, key, members);
}

std::unique_ptr<Board::Seat> Board::take_seat(int worker, std::uint64_t id, std::uint64_t parent,
                                              std::string_view name) {
  require(id != 0, "replica ", name, " has the id 0 on the board, which is nobody's");
  return std::make_unique<Seat>(state_, worker, id, parent, name);
}

std::optional<Board::Verdict> Board::published(const Seat& waiting) const {
  const BoardMemory& memory = state_->memory;
  if (memory.common().verdicts.begun.load() == 0) return std::nullopt;
  const auto seat = read_seat(memory, {waiting.worker_, waiting.index_});
  if (!seat || seat->state != SeatState::waiting) return std::nullopt;
  return watch::published(memory, seat->key, seat->number);
}

void Board::set_local(int first_worker, int count, int replicas, std::span<const int> host_of) {
  const int workers = state_->memory.workers();
  require(first_worker >= 0 && count >= 1 && count <= workers - first_worker, "a host runs ", count,
          " workers from ", first_worker, " on, of ", workers);
  PublicWords& words = state_->memory.common();
  for (std::size_t worker = 0; worker < host_of.size(); ++worker) {
    const auto host = static_cast<std::uint64_t>(host_of[worker]);
    state_->memory.worker(static_cast<int>(worker)).host.store(host + 1);
  }
  words.first_local.store(static_cast<std::uint64_t>(first_worker));
  words.replicas.store(static_cast<std::uint64_t>(std::max(replicas, 0)));
  words.local_workers.store(count == workers ? 0 : static_cast<std::uint64_t>(count));
}

bool Board::spans_hosts() const noexcept {
  return state_->memory.has_others();
}

void Board::publish(const Finding& finding) {
  PublicWords& words = state_->memory.common();
  if (finding.verdict.kind == ErrorKind::timeout) {
    watch::publish(words.absentees, finding);
  } else if (!watch::published(state_->memory, finding.key, finding.number)) {
    watch::publish(words.verdicts, finding);
  }
}

void Board::let_go(const UnheldGroup& group) {
  const BoardMemory& memory = state_->memory;
  require<DataError>(group.worker >= 0 && group.worker < memory.workers() &&
                         memory.is_local(group.worker) && group.slot < kGroups,
                     "this host has no worker ", group.worker, " with a group ", group.slot);
  memory.worker(group.worker).let_go[group.slot].store(group.holds);
}

void Board::want_readings() noexcept {
  state_->memory.common().readings_wanted.count();
}

std::uint64_t Board::readings_wanted() const noexcept {
  return state_->memory.common().readings_wanted.load();
}

void Board::looked(int worker) noexcept {
  state_->memory.worker(worker).looks.count();
}

void Board::set_stopped(int worker, bool stopped) noexcept {
  state_->memory.worker(worker).stopped.store(stopped ? 1 : 0);
}

Word& Board::held_up() const noexcept {
  return state_->memory.common().held_up;
}

std::uint64_t Board::activity(int worker) const {
  const WorkerWords& words = state_->memory.worker(worker);
  std::uint64_t sum = words.looks.load();
  for (const std::uint32_t seat : words.used_seats()) sum += words.seats[seat].version.load();
  return sum;
}

bool Board::is_reusable() const noexcept {
  constexpr std::uint64_t kFew = 256;
  return state_->memory.common().verdicts.begun.load() == 0 &&
         state_->memory.worker(0).seats_used.load() <= kFew;
}

Board::Seat::Seat(std::shared_ptr<BoardState> state, int worker, std::uint64_t id,
                  std::uint64_t parent, std::string_view name)
    : state_(std::move(state)),
      worker_(worker),
      index_(state_->take_seat(worker, name)),
      words_(&state_->memory.worker(worker).seats[index_]) {
  WorkerWords& words = state_->memory.worker(worker);
  const SeatWriting writing(*words_, SeatState::running);
  words_->key.store(0);
  words_->finished.store(0);
  words_->step.store(0);
  write_text(words_->name, name);
  // The parent is written last and removed first: threads that count children find each by its id.
  words.ids[index_].store(id);
  words.parents[index_].store(parent);
}

Board::Seat::~Seat() {
  {
    WorkerWords& words = state_->memory.worker(worker_);
    const SeatWriting writing(*words_, SeatState::free);
    words.parents[index_].store(0);
    words.ids[index_].store(0);
  }
  state_->free_seat(worker_, index_);
}

void Board::Seat::start(Group& group, int place, const CallRecord& call) {
  require(place >= 0 && place < group.size && group.worker == worker_, "place ", place,
          " in a group of ", group.size, " of worker ", group.worker,
          " is not of a member of worker ", worker_);
  Word& arrived = group.entry[place].arrived;
  const std::uint64_t number = arrived.load() + 1;
  {
    const SeatWriting writing(*words_, SeatState::waiting);
    words_->key.store(group.key);
    words_->number.store(number);
    words_->completed.store(0);
    write_now(*words_, call.fingerprint, call.text);
  }
  // Written after the rest: a thread that sees the arrival can see what the member has called.
  arrived.store(number);
}

void Board::Seat::finish() noexcept {
  const SeatWriting writing(*words_, SeatState::running);
  words_->completed.store(1);
  words_->finished.store(words_->finished.load() + 1);
}

void Board::Seat::end_step(std::uint64_t number) noexcept {
  const SeatWriting writing(*words_, SeatState::running);
  words_->step.store(number);
}

void Board::Seat::enter_map(const CallRecord& what, int children) noexcept {
  const SeatWriting writing(*words_, SeatState::map);
  words_->children.store(static_cast<std::uint64_t>(children));
  write_now(*words_, what.fingerprint, what.text);
}

void Board::Seat::leave_map() noexcept {
  const SeatWriting writing(*words_, SeatState::running);
}

void Board::Seat::returned() noexcept {
  const SeatWriting writing(*words_, SeatState::returned);
}

void Board::Seat::threw(std::string_view text) noexcept {
  const SeatWriting writing(*words_, SeatState::threw);
  write_now(*words_, 0, text);
}

// The verdict is published first, where there is room for all of it.
void Board::Seat::fell_out(std::string_view verdict) noexcept {
  const std::uint64_t id = state_->memory.worker(worker_).ids[index_].load();
  const Board::Verdict whole{.text = std::string(verdict)};
  watch::publish(state_->memory.common().verdicts,
                 {.key = id, .number = kOwnEnd, .verdict = whole});
  threw(str(beginning_for(whole.kind), verdict));
}

}  // namespace lockstep::watch
