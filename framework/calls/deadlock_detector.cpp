#include "framework/calls/deadlock_detector.h"

#include <algorithm>
#include <span>

namespace lockstep::calls {
namespace {

bool waits_in(const SlotView& slot, const PendingCall& call) {
  return slot.state == SlotState::waiting && slot.key == call.key && slot.number == call.number;
}

bool is_gone(const SlotView& slot) {
  return slot.state == SlotState::returned || slot.state == SlotState::threw;
}

bool has_slot(const WorkerWords& worker, std::uint64_t id) {
  const std::span ids(worker.ids, worker.used_slots().size());
  return std::ranges::find(ids, id, &Word::load) != ids.end();
}

// Returns in how many calls of the group `key` the member at `place` has arrived, by the entry of
// its own worker; nothing if the entry does not stop changing.
std::optional<std::uint64_t> arrivals(WorkerWords& worker, std::uint64_t key, int place) {
  for (int i = 0; i < 8; ++i) {
    const auto group = find_group(worker, key);
    if (!group || static_cast<std::uint64_t>(place) >= group->size) return 0;
    const std::uint64_t count = members_at(worker, group->offset)[place].arrived.load();
    if (worker.versions[group->index].load() == group->version) return count;
  }
  return std::nullopt;
}

}  // namespace

std::vector<SlotIndex> DeadlockDetector::children_of(std::uint64_t id) const {
  std::vector<SlotIndex> children;
  for (int worker = 0; worker < memory_.workers(); ++worker) {
    const WorkerWords& words = memory_.worker(worker);
    for (const std::uint32_t i : words.used_slots()) {
      if (words.parents[i].load() == id) children.push_back({.worker = worker, .index = i});
    }
  }
  return children;
}

std::optional<SlotIndex> DeadlockDetector::slot_of(std::uint64_t id, int worker) {
  const auto [index, is_new] = indices_->try_emplace(worker);
  Index& slots = index->second;
  if (is_new) {
    const WorkerWords& words = memory_.worker(worker);
    for (const std::uint32_t i : words.used_slots()) {
      if (const std::uint64_t with_slot = words.ids[i].load()) slots.emplace(with_slot, i);
    }
  }
  const auto found = slots.find(id);
  if (found == slots.end()) return std::nullopt;
  return SlotIndex{.worker = worker, .index = found->second};
}

PendingCall& DeadlockDetector::gather(const SlotView& waiting) {
  const auto [found, is_new] = known_calls_.try_emplace({waiting.key, waiting.number});
  PendingCall& call = found->second;
  if (!is_new) return call;
  call.key = waiting.key;
  call.number = waiting.number;
  WorkerWords& worker = memory_.worker(waiting.place.worker);
  if (const auto group = find_group(worker, call.key)) call.members = read_members(worker, *group);
  const auto is_worker = [&](const GroupMember& member) {
    return member.worker >= 0 && member.worker < memory_.workers();
  };
  // Another host may have sent anything.
  if (!std::ranges::all_of(call.members, is_worker)) call.members.clear();
  for (std::size_t i = 0; i < call.members.size(); ++i) place_member(call, static_cast<int>(i));
  return call;
}

// The slot is read before the count: a member that has gone on from the call had arrived before.
void DeadlockDetector::place_member(PendingCall& call, int place) {
  const GroupMember& member = call.members[static_cast<std::size_t>(place)];
  if (!memory_.is_known(member.worker)) {
    call.has_unread = true;
    call.missing.push_back({.place = place, .member = member, .slot = {}, .is_own = false});
    return;
  }
  const auto own = slot_of(member.id, member.worker);
  std::optional<SlotView> slot;
  if (own) {
    slot = read_slot(memory_, *own);
    // The slot is being written or given away: nothing is known of the member.
    if (!slot || slot->id != member.id) {
      call.has_unread = true;
      return;
    }
    if (waits_in(*slot, call)) {
      call.waiting.push_back(*slot);
      return;
    }
  }
  const auto count = arrivals(memory_.worker(member.worker), call.key, place);
  if (!count) {
    call.has_unread = true;
    return;
  }
  if (*count >= call.number) {
    const bool has_left = slot && is_gone(*slot) && !slot->completed && slot->key == call.key &&
                          slot->number == call.number;
    if (has_left) call.left.push_back(*slot);
    // A member that arrives after its slot was read waits, but is not in the list.
    const WorkerWords& worker = memory_.worker(member.worker);
    const bool has_moved = slot ? worker.slots[own->index].version.load() != slot->version
                                : !own && has_slot(worker, member.id);
    call.has_unread = call.has_unread || has_moved;
    return;
  }
  MissingMember missing{.place = place, .member = member, .slot = slot, .is_own = slot.has_value()};
  if (!missing.is_own) find_ancestor(missing);
  call.missing.push_back(missing);
}

void DeadlockDetector::find_ancestor(MissingMember& missing) {
  const GroupMember& member = missing.member;
  for (const std::uint64_t id : member.ancestors) {
    if (id == 0) return;
    auto place = slot_of(id, member.worker);
    for (int other = 0; !place && other < memory_.workers(); ++other) place = slot_of(id, other);
    if (!place) continue;
    const auto ancestor = read_slot(memory_, *place);
    if (!ancestor || ancestor->id != id) return;
    // A map that has yet to start some of its members may be about to start this one.
    const bool may_start_it =
        ancestor->state == SlotState::map && children_of(id).size() < ancestor->children;
    if (!may_start_it) missing.slot = ancestor;
    return;
  }
}

const PendingCall* DeadlockDetector::call_of(SlotIndex place) {
  const auto slot = read_slot(memory_, place);
  if (!slot || slot->state != SlotState::waiting) return nullptr;
  return &gather(*slot);
}

bool DeadlockDetector::find(SlotIndex waiting) {
  const auto slot = read_slot(memory_, waiting);
  return slot && slot->state == SlotState::waiting && visit(*slot);
}

bool DeadlockDetector::visit(const SlotView& slot) {
  found_.way.push_back(slot);
  if (slot.state == SlotState::waiting && visit_call(slot)) return true;
  if (slot.state == SlotState::map && visit_map(slot)) return true;
  found_.way.pop_back();
  return false;
}

bool DeadlockDetector::visit_call(const SlotView& waiting) {
  const auto known = known_calls_.find({waiting.key, waiting.number});
  if (known != known_calls_.end()) {
    const auto place = std::ranges::find(found_.calls, &known->second);
    if (place == found_.calls.end()) return false;
    before_end_ = static_cast<std::size_t>(place - found_.calls.begin());
    return true;
  }
  PendingCall& call = gather(waiting);
  found_.calls.push_back(&call);
  if (is_final(call)) {
    before_end_ = found_.calls.size() - 1;
    return true;
  }
  for (const MissingMember& missing : call.missing) {
    if (!missing.slot) continue;
    found_.edges.push_back({.call = &call, .missing = &missing});
    if (visit(*missing.slot)) return true;
    found_.edges.pop_back();
  }
  found_.calls.pop_back();
  return false;
}

bool DeadlockDetector::visit_map(const SlotView& slot) {
  // A path that comes back to a map has met the call before the map, too, and ends there.
  if (!seen_maps_.insert(slot.place).second) return false;
  const Found before = found_;
  for (const SlotIndex place : children_of(slot.id)) {
    const auto child = read_slot(memory_, place);
    if (!child || child->parent != slot.id) continue;
    if (!visit(*child)) continue;
    if (before_end_ < before.calls.size()) return true;
    found_ = before;
  }
  return false;
}

// Returns true if the call can never end: a member has ended, or the waiting members' calls differ.
bool DeadlockDetector::is_final(const PendingCall& call) {
  std::vector<SlotView> gone = call.left;
  for (const MissingMember& missing : call.missing) {
    if (missing.slot && is_gone(*missing.slot)) gone.push_back(*missing.slot);
  }
  const bool differ = std::ranges::any_of(call.waiting, [&](const SlotView& slot) {
    return slot.fingerprint != call.waiting.front().fingerprint;
  });
  if (gone.empty() && !differ) return false;
  found_.gone = std::move(gone);
  for (const MissingMember& missing : call.missing) {
    if (missing.slot && is_gone(*missing.slot)) found_.edges.push_back({&call, &missing});
  }
  return true;
}

bool DeadlockDetector::holds(const PendingCall& call, const MissingMember& missing) const {
  const GroupMember& member = missing.member;
  const auto count = arrivals(memory_.worker(member.worker), call.key, missing.place);
  if (!count || *count >= call.number) return false;
  if (missing.is_own) return true;

  // The children are counted before the search for the member: if all are there without the member,
  // this map is not the one that starts it.
  const SlotView& ancestor = *missing.slot;
  if (ancestor.state == SlotState::map && children_of(ancestor.id).size() < ancestor.children)
    return false;
  if (has_slot(memory_.worker(member.worker), member.id)) return false;
  for (const std::uint64_t id : member.ancestors) {
    if (id == ancestor.id) break;
    for (int worker = 0; worker < memory_.workers(); ++worker) {
      if (has_slot(memory_.worker(worker), id)) return false;
    }
  }
  return true;
}

bool DeadlockDetector::is_settled() const {
  const auto has_part = [&](const MissingMember& missing) {
    if (!missing.slot) return false;
    const SlotView& view = *missing.slot;
    if (is_gone(view)) return true;
    if (view.state == SlotState::waiting) {
      return std::ranges::any_of(found_.calls,
                                 [&](const PendingCall* call) { return waits_in(view, *call); });
    }
    return std::ranges::any_of(found_.way, [&](const SlotView& slot) {
      return slot.state == SlotState::map && slot.place == view.place;
    });
  };
  return std::ranges::all_of(found_.calls, [&](const PendingCall* call) {
    return !call->has_unread && std::ranges::all_of(call->missing, has_part);
  });
}

bool DeadlockDetector::is_unchanged() const {
  const auto same = [&](const SlotView& slot) {
    return memory_.worker(slot.place.worker).slots[slot.place.index].version.load() == slot.version;
  };
  return std::ranges::all_of(found_.way, same) && std::ranges::all_of(found_.gone, same) &&
         std::ranges::all_of(found_.calls, [&](const PendingCall* call) {
           return std::ranges::all_of(call->waiting, same);
         });
}

// Slots are read before counts: a member that has gone on from a call had arrived before. They are
// read after counts, too: counts are kept as long as a member waits.
bool DeadlockDetector::holds() const {
  const auto has_not_come = [&](const Edge& edge) { return holds(*edge.call, *edge.missing); };
  return is_unchanged() && std::ranges::all_of(found_.edges, has_not_come) && is_unchanged();
}

}  // namespace lockstep::calls
