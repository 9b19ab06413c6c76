#include "framework/comm/group_layout.h"

namespace lockstep::comm {

GroupLayout::GroupLayout(std::span<const watch::GroupMember> members, int own_worker) {
  for (const watch::GroupMember& member : members) {
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
  const std::size_t block = own_places().size();
  for (std::size_t place = 0; place < size(); ++place) {
    has_blocks_ = has_blocks_ && size() == block * workers() && worker_of(place) == place / block;
  }
  for (const auto type : {ElementType::float16, ElementType::float32}) {
    plans_.emplace_back(places_, type, ReduceOp::sum);
  }
}

}  // namespace lockstep::comm
