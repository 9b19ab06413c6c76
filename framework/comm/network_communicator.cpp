#include "framework/comm/network_communicator.h"

#include <array>
#include <map>
#include <set>
#include <utility>

#include "framework/reduce/partial_sums.h"
#include "framework/reduce/reduce.h"

namespace lockstep::comm {

// A verb's way through a schedule. It holds this member's input, sum or result of each slice.
class NetworkCommunicator::Rounds {
 public:
  // Member 0 of the schedule is the group's member `first`.
  Rounds(NetworkCommunicator& group, const Schedule& schedule, int first = 0)
      : group_(group),
        schedule_(schedule),
        first_(first),
        held_(static_cast<std::size_t>(schedule.slices)) {}

  void hold(std::size_t slice, ConstBytes data) { held_[slice] = data; }
  // part(slice) is the slice in a buffer.
  void hold_all(const auto& part) {
    for (std::size_t slice = 0; slice < held_.size(); ++slice) hold(slice, part(slice));
  }

  // Does the rounds that add, from the inputs on. Writes the results of the slices that the
  // schedule leaves to this member to result(slice).
  void add_up(const auto& result, ElementType type, ReduceOp op) {
    const auto own = static_cast<std::int64_t>(group_.me());
    const std::size_t rounds = schedule_.adding.size();
    for (std::size_t number = 0; number < rounds; ++number) {
      std::map<std::size_t, std::map<std::int64_t, ConstBytes>> came;  // by slice and first member
      std::set<std::size_t> replaced;  // slices whose sum of the own block another member sends
      for (const Piece& piece : exchange(schedule_.adding[number], result, To::scratch)) {
        came[piece.slice][piece.of.first] = piece.data;
        if (own >= piece.of.first && own < piece.of.first + piece.of.count)
          replaced.insert(piece.slice);
      }
      const bool is_last = number + 1 == rounds;
      for (auto& [slice, parts] : came) {
        // The own block begins at or before this member, the next one after it.
        if (replaced.count(slice) == 0) parts[own] = held_[slice];
        std::vector<const std::byte*> inputs;
        for (const auto& [first, part] : parts) inputs.push_back(part.data());
        const Bytes to = result(slice);
        const Bytes sum = is_last ? to : group_.scratch_.take(to.size());
        reduce::reduce(inputs, sum, type, rounds == 1 ? op : reduce::partial_op(op));
        if (is_last && rounds > 1) reduce::divide(sum, group_.size(), type, op);
        held_[slice] = sum;
      }
    }
  }

  // Does the rounds that pass on results: in the end each slice is in where(slice).
  void pass_on(const auto& where) {
    for (const Schedule::Round& round : schedule_.passing) {
      for (const Piece& piece : exchange(round, where, To::its_place)) {
        copy_bytes(piece.data, where(piece.slice));
        held_[piece.slice] = where(piece.slice);
      }
    }
  }

  // Does the rounds that add as a barrier: each message is one byte, which is dropped.
  void meet() {
    std::array<std::byte, 1> here{};
    hold(0, here);
    for (const auto& round : schedule_.adding) {
      (void)exchange(
          round, [&](std::size_t) { return Bytes(here); }, To::scratch);
    }
  }

 private:
  // A received part of a slice: the sum `of` these members, or the result.
  struct Piece {
    std::size_t slice;
    reduce::Subtree of;
    ConstBytes data;
  };
  enum class To { scratch, its_place };

  // Sends and receives a round's messages. part(slice) has a slice's size and, for To::its_place,
  // its place. Slices that come in one message go to scratch memory first.
  std::vector<Piece> exchange(const Schedule::Round& round, const auto& part, To to) {
    const auto n = static_cast<std::size_t>(group_.size());
    const auto place = [&](int member) { return static_cast<std::size_t>(member + first_) % n; };
    std::vector<ConstBytes> sent(n);
    std::vector<Bytes> received(n);
    for (const Transfer& each : round) {
      if (place(each.from) == group_.me()) sent[place(each.to)] = message_of(each.slices);
      if (place(each.to) != group_.me()) continue;
      const bool is_placed = to == To::its_place && each.slices.count == 1;
      received[place(each.from)] =
          is_placed ? part(slice_at(each.slices, 0)) : memory_for(each.slices, part);
    }
    group_.exchange(sent, received);
    std::vector<Piece> pieces;
    for (const Transfer& each : round) {
      if (place(each.to) != group_.me()) continue;
      ConstBytes rest = received[place(each.from)];
      for (int i = 0; i < each.slices.count; ++i) {
        const std::size_t slice = slice_at(each.slices, i);
        pieces.push_back({slice, each.of, rest.first(part(slice).size())});
        rest = rest.subspan(part(slice).size());
      }
    }
    return pieces;
  }

  // Returns this member's data of the slices, end to end.
  ConstBytes message_of(const Slices& slices) {
    if (slices.count == 1) return held_[slice_at(slices, 0)];
    const Bytes message = memory_for(slices, [&](std::size_t slice) { return held_[slice]; });
    Bytes rest = message;
    for (int i = 0; i < slices.count; ++i) {
      const ConstBytes part = held_[slice_at(slices, i)];
      copy_bytes(part, rest);
      rest = rest.subspan(part.size());
    }
    return message;
  }

  Bytes memory_for(const Slices& slices, const auto& part) {
    std::size_t total = 0;
    for (int i = 0; i < slices.count; ++i) total += part(slice_at(slices, i)).size();
    return group_.scratch_.take(total);
  }

  static std::size_t slice_at(const Slices& slices, int index) {
    return static_cast<std::size_t>(slices[index]);
  }

  NetworkCommunicator& group_;
  const Schedule& schedule_;
  int first_;
  std::vector<ConstBytes> held_;
};

NetworkCommunicator::NetworkCommunicator(std::shared_ptr<MessageLink> link,
                                         std::vector<int> members, int place, std::uint64_t channel)
    : Communicator(place, static_cast<int>(members.size())),
      link_(std::move(link)),
      members_(std::move(members)),
      messages_{Cancellation(link_->cancellation()), Key(channel).fold(members_)} {
  link_->begin(messages_);
}

std::shared_ptr<Communicator> NetworkCommunicator::do_subgroup(std::span<const int> members,
                                                               int own_place,
                                                               std::uint64_t channel) {
  return std::make_shared<NetworkCommunicator>(link_, items_at(members_, members), own_place,
                                               channel);
}

void NetworkCommunicator::run(const Verb& verb) {
  if (size() == 1) {
    messages_.user.check();  // a group of one sends no message, which would check this
    return run_alone(verb);
  }
  verb_mark_ = next_mark();
  const Scratch::Use use(scratch_);
  switch (verb.kind) {
    case Verb::Kind::all_reduce:
      return all_reduce(verb);
    case Verb::Kind::reduce_scatter:
      return reduce_scatter(verb);
    case Verb::Kind::all_gather:
      return all_gather(verb);
    case Verb::Kind::all_to_all:
      return all_to_all(verb);
    case Verb::Kind::broadcast:
      return broadcast(verb);
    case Verb::Kind::barrier:
      return Rounds(*this, schedules().all_reduce(1, {.whole = true})).meet();
    case Verb::Kind::allocate:
      *verb.buffer = private_buffer(verb.bytes);
      for (int place = 0; verb.copies == Copies::one && place < size(); ++place) {
        verb.buffer->holders.push_back({place});
      }
      return;
  }
}

void NetworkCommunicator::all_reduce(const Verb& verb) {
  if (verb.output.empty()) return;
  const Schedule& schedule = schedules().all_reduce(
      verb.output.size(), {.complete = !reduce::has_partial_sums(verb.type, verb.op)});
  const auto part_of = [&](auto buffer, std::size_t slice) {
    return slice_of(buffer, size_of(verb.type), static_cast<std::size_t>(schedule.slices), slice);
  };
  const auto result = [&](std::size_t slice) { return part_of(verb.output, slice); };
  Rounds rounds(*this, schedule);
  rounds.hold_all([&](std::size_t slice) { return part_of(verb.input, slice); });
  rounds.add_up(result, verb.type, verb.op);
  rounds.pass_on(result);
}

void NetworkCommunicator::reduce_scatter(const Verb& verb) {
  const Bytes output = verb.output;
  if (output.empty()) return;
  Rounds rounds(
      *this, schedules().reduce_scatter(
                 verb.input.size(), {.complete = !reduce::has_partial_sums(verb.type, verb.op)}));
  rounds.hold_all(
      [&](std::size_t slice) { return verb.input.subspan(slice * output.size(), output.size()); });
  // Only the own slice's sum is written to `output`: for other slices just its size counts.
  rounds.add_up([&](std::size_t) { return output; }, verb.type, verb.op);
}

void NetworkCommunicator::all_gather(const Verb& verb) {
  const auto part = [&](std::size_t place) {
    return verb.output.subspan(place * verb.input.size(), verb.input.size());
  };
  copy_bytes(verb.input, part(me()));
  Rounds rounds(*this, schedules().all_gather(verb.output.size()));
  rounds.hold(me(), part(me()));
  rounds.pass_on(part);
}

void NetworkCommunicator::all_to_all(const Verb& verb) {
  const auto sent = pieces_of(verb.input, verb.send_sizes);
  const auto received = pieces_of(verb.output, verb.recv_sizes);
  copy_bytes(sent[me()], received[me()]);
  exchange(sent, received);
}

void NetworkCommunicator::broadcast(const Verb& verb) {
  const Schedule& schedule = schedules().broadcast(verb.output.size());
  const auto part = [&](std::size_t slice) {
    return slice_of(verb.output, 1, static_cast<std::size_t>(schedule.slices), slice);
  };
  Rounds rounds(*this, schedule, verb.root);
  if (rank() == verb.root) rounds.hold_all(part);
  rounds.pass_on(part);
}

// Sends sent[p] to each other member p and receives received[p] from it; both sides leave out empty
// messages. The next member comes first, so that not all send to the same one at once.
void NetworkCommunicator::exchange(std::span<const ConstBytes> sent,
                                   std::span<const Bytes> received) {
  std::vector<PeerMessage> messages;
  for (std::size_t step = 1; step < members_.size(); ++step) {
    const std::size_t place = (me() + step) % members_.size();
    const int peer = members_[place];
    if (!sent[place].empty()) messages.push_back({.peer = peer, .sent = sent[place]});
    if (!received[place].empty()) messages.push_back({.peer = peer, .received = received[place]});
  }
  link_->exchange(messages_, messages_.key.fold(exchanges_++).fold(verb_mark_), messages);
}

// Makes the schedules when the first verb needs them, or when the speed has changed.
const ScheduleChoice& NetworkCommunicator::schedules() {
  const LinkSpeed link = link_speed();
  if (!schedules_ || schedules_->link() != link) schedules_.emplace(size(), link);
  return *schedules_;
}

}  // namespace lockstep::comm
