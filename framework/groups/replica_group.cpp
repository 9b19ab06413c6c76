#include "framework/groups/replica_group.h"

#include <utility>
#include <vector>

#include "framework/base/random.h"

namespace lockstep {

ReplicaGroup::ReplicaGroup(std::shared_ptr<LocalGroup> local, const Member& member, int place)
    : Communicator(place, static_cast<int>(local->layout().size())),
      local_(std::move(local)),
      member_(member) {}

void ReplicaGroup::begin(const CallRecord& call) {
  local_->replicas().check_process();
  mark(call.fingerprint);
  verbs_ = 0;
  // A cancelled replica leaves its last call on the board: others may still look at it.
  if (!member_.cancellation->is_cancelled())
    member_.seat->start(local_->board_group(), rank(), call);
}

void ReplicaGroup::run(const Verb& verb) {
  local_->run(member_, rank(), Key(current_mark()).fold(verbs_++).bits(), verb);
}

std::shared_ptr<Communicator> ReplicaGroup::do_subgroup(std::span<const int> members, int own_place,
                                                        std::uint64_t channel) {
  Key key = Key(local_->key()).fold("subgroup").fold(channel);
  for (const int member : members) key = key.fold(static_cast<std::uint64_t>(member));
  auto local = local_->replicas().group(key.bits(), [&] {
    std::vector<GroupMember> chosen;
    for (const int member : members) {
      chosen.push_back(local_->members()[static_cast<std::size_t>(member)]);
    }
    return chosen;
  });
  return std::make_shared<ReplicaGroup>(std::move(local), member_, own_place);
}

}  // namespace lockstep
