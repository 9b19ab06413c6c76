#include "framework/comm/replica_group.h"

#include <set>
#include <utility>
#include <vector>

#include "framework/base/errors.h"
#include "framework/base/random.h"

namespace lockstep {

ReplicaGroup::ReplicaGroup(std::shared_ptr<Meeting> meeting, const Member& member, int place)
    : Communicator(place, meeting->size()), meeting_(std::move(meeting)), member_(member) {}

void ReplicaGroup::begin(const CallRecord& call) {
  meeting_->site().check_process();
  mark(call.fingerprint);
  verbs_ = 0;
  // Who is at its end leaves standing what it has called last: others may still be looking.
  if (!member_.fate->ended()) member_.seat->start(meeting_->board_group(), rank(), call);
}

void ReplicaGroup::end() {
  member_.seat->finish();
}

int ReplicaGroup::place_in_this_process() const noexcept {
  int count = 0;
  for (int place = 0; place < rank(); ++place) {
    const GroupMember& member = meeting_->members()[static_cast<std::size_t>(place)];
    count += member.host == meeting_->site().host() ? 1 : 0;
  }
  return count;
}

int ReplicaGroup::in_this_process() const noexcept {
  int count = 0;
  for (const GroupMember& member : meeting_->members()) {
    count += member.host == meeting_->site().host() ? 1 : 0;
  }
  return count;
}

bool ReplicaGroup::has_several_in_a_process() const {
  std::set<int> hosts;
  for (const GroupMember& member : meeting_->members()) hosts.insert(member.host);
  return hosts.size() < meeting_->members().size();
}

void ReplicaGroup::abort(const std::string& reason) noexcept {
  interrupt(std::make_exception_ptr(Aborted(reason)));
}

void ReplicaGroup::interrupt(const std::exception_ptr& error) noexcept {
  meeting_->interrupt(error);
}

void ReplicaGroup::meet(const Deposit& deposit) {
  meeting_->meet(member_, rank(), Key(current_mark()).fold(verbs_++).bits(), deposit);
}

void ReplicaGroup::do_all_reduce(std::span<const std::byte> input, std::span<std::byte> output,
                                 ElementType type, ReduceOp op) {
  meet({.verb = Deposit::Verb::all_reduce,
        .input = input,
        .output = output,
        .type = type,
        .op = op});
}

void ReplicaGroup::do_reduce_scatter(std::span<const std::byte> input, std::span<std::byte> output,
                                     ElementType type, ReduceOp op) {
  meet({.verb = Deposit::Verb::reduce_scatter,
        .input = input,
        .output = output,
        .type = type,
        .op = op});
}

void ReplicaGroup::do_all_gather(std::span<const std::byte> input, std::span<std::byte> output) {
  meet({.verb = Deposit::Verb::all_gather, .input = input, .output = output});
}

void ReplicaGroup::do_all_to_all(std::span<const std::byte> input,
                                 std::span<const std::size_t> send_sizes,
                                 std::span<std::byte> output,
                                 std::span<const std::size_t> recv_sizes) {
  meet({.verb = Deposit::Verb::all_to_all,
        .input = input,
        .output = output,
        .send_sizes = send_sizes,
        .recv_sizes = recv_sizes});
}

void ReplicaGroup::do_permute(std::span<const std::byte> input, int destination,
                              std::span<std::byte> output, int source) {
  meet({.verb = Deposit::Verb::permute,
        .input = input,
        .output = output,
        .destination = destination,
        .source = source});
}

void ReplicaGroup::do_broadcast(std::span<std::byte> data, int root) {
  meet({.verb = Deposit::Verb::broadcast, .output = data, .source = root});
}

void ReplicaGroup::do_barrier() {
  meet({.verb = Deposit::Verb::barrier});
}

std::shared_ptr<SymmetricBuffer> ReplicaGroup::do_allocate(std::size_t bytes, Copies copies) {
  std::shared_ptr<SymmetricBuffer> buffer;
  meet({.verb = Deposit::Verb::allocate, .bytes = bytes, .copies = copies, .buffer = &buffer});
  return buffer;
}

std::shared_ptr<Communicator> ReplicaGroup::do_subgroup(std::span<const int> members, int own_place,
                                                        std::uint64_t channel) {
  Key key = Key(meeting_->key()).fold("subgroup").fold(channel);
  for (const int member : members) key = key.fold(static_cast<std::uint64_t>(member));
  auto meeting = meeting_->site().meeting(key.bits(), [&] {
    std::vector<GroupMember> chosen;
    for (const int member : members) {
      chosen.push_back(meeting_->members()[static_cast<std::size_t>(member)]);
    }
    return chosen;
  });
  return std::make_shared<ReplicaGroup>(std::move(meeting), member_, own_place);
}

}  // namespace lockstep
