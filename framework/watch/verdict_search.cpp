#include "framework/watch/verdict_search.h"

#include <algorithm>
#include <span>

namespace lockstep::watch {
namespace {

bool waits_in(const SeatView& seat, const PendingCall& call) {
  return seat.state == SeatState::waiting && seat.key == call.key && seat.number == call.number;
}

bool is_gone(const SeatView& seat) {
  return seat.state == SeatState::returned || seat.state == SeatState::threw;
}

bool has_seat(const WorkerWords& worker, std::uint64_t id) {
  const std::span ids(worker.ids, worker.used_seats().size());
  return std::ranges::find(ids, id, &Word::load) != ids.end();
}

// In how many calls of the group `key` the member at `place` has arrived, by the entry of its own
// worker; none if that does not stop changing.
std::optional<std::uint64_t> arrivals(WorkerWords& worker, std::uint64_t key, int place) {
  for (int i = 0; i < 8; ++i) {
    const auto group = find_group(worker, key);
    if (!group || static_cast<std::uint64_t>(place) >= group->size) return 0;
    const std::uint64_t count = members_at(worker, group->offset)[place].arrived.load();
    if (worker.versions[group->slot].load() == group->version) return count;
  }
  return std::nullopt;
}

}  // namespace

std::vector<SeatIndex> VerdictSearch::children_of(std::uint64_t id) const {
  std::vector<SeatIndex> children;
  for (int worker = 0; worker < memory_.workers(); ++worker) {
    const WorkerWords& words = memory_.worker(worker);
    for (const std::uint32_t i : words.used_seats()) {
      if (words.parents[i].load() == id) children.push_back({.worker = worker, .index = i});
    }
  }
  return children;
}

std::optional<SeatIndex> VerdictSearch::seat_of(std::uint64_t id, int worker) {
  const auto [index, is_new] = indices_->try_emplace(worker);
  Index& seats = index->second;
  if (is_new) {
    const WorkerWords& words = memory_.worker(worker);
    for (const std::uint32_t i : words.used_seats()) {
      if (const std::uint64_t seated = words.ids[i].load()) seats.emplace(seated, i);
    }
  }
  const auto found = seats.find(id);
  if (found == seats.end()) return std::nullopt;
  return SeatIndex{.worker = worker, .index = found->second};
}

PendingCall& VerdictSearch::gather(const SeatView& waiting) {
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
  // Another host may have said anything.
  if (!std::ranges::all_of(call.members, is_worker)) call.members.clear();
  for (std::size_t i = 0; i < call.members.size(); ++i) place_member(call, static_cast<int>(i));
  return call;
}

// The seat is read before the count: a member that has gone on from the call had arrived before.
void VerdictSearch::place_member(PendingCall& call, int place) {
  const GroupMember& member = call.members[static_cast<std::size_t>(place)];
  if (!memory_.is_known(member.worker)) {
    call.has_unread = true;
    call.missing.push_back({.place = place, .member = member, .seat = {}, .is_own = false});
    return;
  }
  const auto own = seat_of(member.id, member.worker);
  std::optional<SeatView> seat;
  if (own) {
    seat = read_seat(memory_, *own);
    // Its seat is being written or given away: nothing is known of it.
    if (!seat || seat->id != member.id) {
      call.has_unread = true;
      return;
    }
    if (waits_in(*seat, call)) {
      call.waiting.push_back(*seat);
      return;
    }
  }
  const auto count = arrivals(memory_.worker(member.worker), call.key, place);
  if (!count) {
    call.has_unread = true;
    return;
  }
  if (*count >= call.number) {
    const bool has_left = seat && is_gone(*seat) && !seat->completed && seat->key == call.key &&
                          seat->number == call.number;
    if (has_left) call.left.push_back(*seat);
    // It may have arrived after its seat was read: then it waits, but is not in the list.
    const WorkerWords& worker = memory_.worker(member.worker);
    const bool has_moved = seat ? worker.seats[own->index].version.load() != seat->version
                                : !own && has_seat(worker, member.id);
    call.has_unread = call.has_unread || has_moved;
    return;
  }
  MissingMember missing{.place = place, .member = member, .seat = seat, .is_own = seat.has_value()};
  if (!missing.is_own) find_elder(missing);
  call.missing.push_back(missing);
}

void VerdictSearch::find_elder(MissingMember& missing) {
  const GroupMember& member = missing.member;
  for (const std::uint64_t id : member.elders) {
    if (id == 0) return;
    auto place = seat_of(id, member.worker);
    for (int other = 0; !place && other < memory_.workers(); ++other) place = seat_of(id, other);
    if (!place) continue;
    const auto elder = read_seat(memory_, *place);
    if (!elder || elder->id != id) return;
    // A map some of whose members have no seat may be about to start this one.
    const bool may_start_it =
        elder->state == SeatState::map && children_of(id).size() < elder->children;
    if (!may_start_it) missing.seat = elder;
    return;
  }
}

const PendingCall* VerdictSearch::call_of(SeatIndex place) {
  const auto seat = read_seat(memory_, place);
  if (!seat || seat->state != SeatState::waiting) return nullptr;
  return &gather(*seat);
}

bool VerdictSearch::find(SeatIndex waiting) {
  const auto seat = read_seat(memory_, waiting);
  return seat && seat->state == SeatState::waiting && visit(*seat);
}

bool VerdictSearch::visit(const SeatView& seat) {
  found_.way.push_back(seat);
  if (seat.state == SeatState::waiting && visit_call(seat)) return true;
  if (seat.state == SeatState::map && visit_map(seat)) return true;
  found_.way.pop_back();
  return false;
}

bool VerdictSearch::visit_call(const SeatView& waiting) {
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
    if (!missing.seat) continue;
    found_.edges.push_back({.call = &call, .missing = &missing});
    if (visit(*missing.seat)) return true;
    found_.edges.pop_back();
  }
  found_.calls.pop_back();
  return false;
}

bool VerdictSearch::visit_map(const SeatView& seat) {
  // A way that comes back to a map has come by the call before it, too, and ends there.
  if (!seen_maps_.insert(seat.place).second) return false;
  const Found before = found_;
  for (const SeatIndex place : children_of(seat.id)) {
    const auto child = read_seat(memory_, place);
    if (!child || child->parent != seat.id) continue;
    if (!visit(*child)) continue;
    if (before_end_ < before.calls.size()) return true;
    found_ = before;
  }
  return false;
}

// Whether the call can never end: a member of it has ended, or the waiting members' calls differ.
bool VerdictSearch::is_final(const PendingCall& call) {
  std::vector<SeatView> gone = call.left;
  for (const MissingMember& missing : call.missing) {
    if (missing.seat && is_gone(*missing.seat)) gone.push_back(*missing.seat);
  }
  const bool differ = std::ranges::any_of(call.waiting, [&](const SeatView& seat) {
    return seat.fingerprint != call.waiting.front().fingerprint;
  });
  if (gone.empty() && !differ) return false;
  found_.gone = std::move(gone);
  for (const MissingMember& missing : call.missing) {
    if (missing.seat && is_gone(*missing.seat)) found_.edges.push_back({&call, &missing});
  }
  return true;
}

bool VerdictSearch::holds(const PendingCall& call, const MissingMember& missing) const {
  const GroupMember& member = missing.member;
  const auto count = arrivals(memory_.worker(member.worker), call.key, missing.place);
  if (!count || *count >= call.number) return false;
  if (missing.is_own) return true;

  // The children are counted before the member is looked for: if all are there and it is not, then
  // the map is not the one that starts it.
  const SeatView& elder = *missing.seat;
  if (elder.state == SeatState::map && children_of(elder.id).size() < elder.children) return false;
  if (has_seat(memory_.worker(member.worker), member.id)) return false;
  for (const std::uint64_t id : member.elders) {
    if (id == elder.id) break;
    for (int worker = 0; worker < memory_.workers(); ++worker) {
      if (has_seat(memory_.worker(worker), id)) return false;
    }
  }
  return true;
}

bool VerdictSearch::is_settled() const {
  const auto has_part = [&](const MissingMember& missing) {
    if (!missing.seat) return false;
    const SeatView& view = *missing.seat;
    if (is_gone(view)) return true;
    if (view.state == SeatState::waiting) {
      return std::ranges::any_of(found_.calls,
                                 [&](const PendingCall* call) { return waits_in(view, *call); });
    }
    return std::ranges::any_of(found_.way, [&](const SeatView& seat) {
      return seat.state == SeatState::map && seat.place == view.place;
    });
  };
  return std::ranges::all_of(found_.calls, [&](const PendingCall* call) {
    return !call->has_unread && std::ranges::all_of(call->missing, has_part);
  });
}

bool VerdictSearch::is_unchanged() const {
  const auto same = [&](const SeatView& seat) {
    return memory_.worker(seat.place.worker).seats[seat.place.index].version.load() == seat.version;
  };
  return std::ranges::all_of(found_.way, same) && std::ranges::all_of(found_.gone, same) &&
         std::ranges::all_of(found_.calls, [&](const PendingCall* call) {
           return std::ranges::all_of(call->waiting, same);
         });
}

// Seats before counts: a member that has gone on from a call had arrived before. And seats after
// counts: these are kept for as long as someone waits.
bool VerdictSearch::holds() const {
  const auto has_not_come = [&](const Edge& edge) { return holds(*edge.call, *edge.missing); };
  return is_unchanged() && std::ranges::all_of(found_.edges, has_not_come) && is_unchanged();
}

}  // namespace lockstep::watch
