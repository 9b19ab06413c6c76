#include "framework/comm/group_layout.h"

#include <algorithm>

namespace lockstep {

GroupLayout::GroupLayout(std::span<const GroupMember> members, int own_worker) {
  for (const GroupMember& member : members) {
    const auto known = std::find(numbers_.begin(), numbers_.end(), member.worker);
    const auto worker = static_cast<std::size_t>(known - numbers_.begin());
    if (known == numbers_.end()) {
      numbers_.push_back(member.worker);
      places_.emplace_back();
    }
    if (member.worker == own_worker) own_ = worker;
    index_of_.push_back(places_[worker].size());
    places_[worker].push_back(static_cast<int>(worker_of_.size()));
    worker_of_.push_back(worker);
  }
}

GroupLayout GroupLayout::one_each(int workers, int own) {
  std::vector<GroupMember> members(static_cast<std::size_t>(workers));
  for (int worker = 0; worker < workers; ++worker) {
    members[static_cast<std::size_t>(worker)].worker = worker;
  }
  return {members, own};
}

}  // namespace lockstep
