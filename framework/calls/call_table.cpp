#include "framework/calls/call_table.h"

#include <algorithm>
#include <utility>

#include "framework/base/text.h"
#include "framework/calls/table_memory.h"

namespace lockstep::calls {
namespace {

// A change of a slot's words by the slot's own thread.
struct SlotWriting : Writing {
  SlotWriting(SlotWords& words, SlotState state) noexcept : Writing(words.version) {
    words.state.store(static_cast<std::uint64_t>(state));
  }
};

// Writes the record of the member's present call, map or error.
void write_now(SlotWords& words, std::uint64_t fingerprint, std::string_view text) noexcept {
  RecordWords& record = words.records[1 - words.finished.load() % 2];
  record.fingerprint.store(fingerprint);
  write_text(record.text, text);
}

}  // namespace

CallTable::CallTable(int workers) : state_(std::make_shared<TableState>(TableMemory(workers))) {}

CallTable::CallTable(int workers, int descriptor, std::size_t offset)
    : state_(std::make_shared<TableState>(TableMemory(workers, descriptor, offset))) {}

std::size_t CallTable::bytes_for(int workers) {
  // More workers on one host are a mistake, though they take addresses, not memory.
  constexpr int kMaxWorkers = 65536;
  require(workers >= 1 && workers <= kMaxWorkers, "the replicas of a host run on 1 to ",
          kMaxWorkers, " workers, not on ", workers);
  return sizeof(PublicWords) + static_cast<std::size_t>(workers) * sizeof(WorkerWords);
}

std::shared_ptr<CallTable::Group> CallTable::group(int worker, std::uint64_t key,
                                                   std::span<const GroupMember> members) {
  return state_->hold_group(worker, key, members);
}

std::unique_ptr<CallTable::Slot> CallTable::take_slot(int worker, std::uint64_t id,
                                                      std::uint64_t parent, std::string_view name) {
  require(id != 0, "replica ", name, " has the id 0 in the call table, which is nobody's");
  return std::make_unique<Slot>(state_, worker, id, parent, name);
}

std::optional<CallTable::DeadlockReport> CallTable::published(const Slot& waiting) const {
  const TableMemory& memory = state_->memory;
  if (memory.common().reports.begun.load() == 0) return std::nullopt;
  const auto slot = read_slot(memory, {waiting.worker_, waiting.index_});
  if (!slot || slot->state != SlotState::waiting) return std::nullopt;
  return calls::published(memory, slot->key, slot->number);
}

void CallTable::set_local(int first_worker, int count, int replicas, std::span<const int> host_of) {
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

bool CallTable::spans_hosts() const noexcept {
  return state_->memory.has_others();
}

void CallTable::publish(const Finding& finding) {
  PublicWords& words = state_->memory.common();
  if (finding.report.kind == ErrorKind::timeout) {
    calls::publish(words.absentees, finding);
  } else if (!calls::published(state_->memory, finding.key, finding.number)) {
    calls::publish(words.reports, finding);
  }
}

void CallTable::let_go(const UnheldGroup& group) {
  const TableMemory& memory = state_->memory;
  require<DataError>(group.worker >= 0 && group.worker < memory.workers() &&
                         memory.is_local(group.worker) && group.index < kGroups,
                     "this host has no worker ", group.worker, " with a group ", group.index);
  memory.worker(group.worker).let_go[group.index].store(group.holds);
}

void CallTable::want_readings() noexcept {
  state_->memory.common().readings_wanted.count();
}

std::uint64_t CallTable::readings_wanted() const noexcept {
  return state_->memory.common().readings_wanted.load();
}

void CallTable::looked(int worker) noexcept {
  state_->memory.worker(worker).looks.count();
}

void CallTable::set_stopped(int worker, bool stopped) noexcept {
  state_->memory.worker(worker).stopped.store(stopped ? 1 : 0);
}

Word& CallTable::held_up() const noexcept {
  return state_->memory.common().held_up;
}

std::uint64_t CallTable::activity(int worker) const {
  const WorkerWords& words = state_->memory.worker(worker);
  std::uint64_t sum = words.looks.load();
  for (const std::uint32_t slot : words.used_slots()) sum += words.slots[slot].version.load();
  return sum;
}

bool CallTable::is_reusable() const noexcept {
  constexpr std::uint64_t kFew = 256;
  return state_->memory.common().reports.begun.load() == 0 &&
         state_->memory.worker(0).slots_used.load() <= kFew;
}

CallTable::Slot::Slot(std::shared_ptr<TableState> state, int worker, std::uint64_t id,
                      std::uint64_t parent, std::string_view name)
    : state_(std::move(state)),
      worker_(worker),
      index_(state_->take_slot(worker, name)),
      words_(&state_->memory.worker(worker).slots[index_]) {
  WorkerWords& words = state_->memory.worker(worker);
  const SlotWriting writing(*words_, SlotState::running);
  words_->key.store(0);
  words_->finished.store(0);
  words_->step.store(0);
  write_text(words_->name, name);
  // The parent is written last and removed first: threads that count children find each by its id.
  words.ids[index_].store(id);
  words.parents[index_].store(parent);
}

CallTable::Slot::~Slot() {
  {
    WorkerWords& words = state_->memory.worker(worker_);
    const SlotWriting writing(*words_, SlotState::free);
    words.parents[index_].store(0);
    words.ids[index_].store(0);
  }
  state_->free_slot(worker_, index_);
}

void CallTable::Slot::start(Group& group, int place, const CallRecord& call) {
  require(place >= 0 && place < group.size && group.worker == worker_, "place ", place,
          " in a group of ", group.size, " of worker ", group.worker,
          " is not of a member of worker ", worker_);
  Word& arrived = group.entry[place].arrived;
  const std::uint64_t number = arrived.load() + 1;
  {
    const SlotWriting writing(*words_, SlotState::waiting);
    words_->key.store(group.key);
    words_->number.store(number);
    words_->completed.store(0);
    write_now(*words_, call.fingerprint, call.text);
  }
  // The arrival comes after the rest: a thread that sees it can see the member's call.
  arrived.store(number);
}

void CallTable::Slot::finish() noexcept {
  const SlotWriting writing(*words_, SlotState::running);
  words_->completed.store(1);
  words_->finished.store(words_->finished.load() + 1);
}

void CallTable::Slot::end_step(std::uint64_t number) noexcept {
  const SlotWriting writing(*words_, SlotState::running);
  words_->step.store(number);
}

void CallTable::Slot::enter_map(const CallRecord& what, int children) noexcept {
  const SlotWriting writing(*words_, SlotState::map);
  words_->children.store(static_cast<std::uint64_t>(children));
  write_now(*words_, what.fingerprint, what.text);
}

void CallTable::Slot::leave_map() noexcept {
  const SlotWriting writing(*words_, SlotState::running);
}

void CallTable::Slot::returned() noexcept {
  const SlotWriting writing(*words_, SlotState::returned);
}

void CallTable::Slot::threw(std::string_view text) noexcept {
  const SlotWriting writing(*words_, SlotState::threw);
  write_now(*words_, 0, text);
}

// Publishes the report first: whoever sees the end finds the whole text, which the slot may cut.
void CallTable::Slot::fell_out(std::string_view report) noexcept {
  const std::uint64_t id = state_->memory.worker(worker_).ids[index_].load();
  const CallTable::DeadlockReport whole{.text = std::string(report)};
  calls::publish(state_->memory.common().reports, {.key = id, .number = kOwnEnd, .report = whole});
  threw(str(beginning_for(whole.kind), report));
}

}  // namespace lockstep::calls
