#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>
#include <utility>
#include <vector>

#include "framework/base/random.h"
#include "framework/comm/cancellation.h"
#include "framework/comm/hierarchy.h"

namespace lockstep::comm {

/// A member alone in its process. Messages to the others' processes go over a Link (which has a
/// cancellation() and a ledger()), by the derived class' transfer(). `Member` is that class, made
/// from the arguments of this one's constructor.
template <typename Member, typename Link>
class LoneMember : public LocalMembers {
 public:
  /// `members` are the group's ranks on the link, in its order.
  LoneMember(std::shared_ptr<Link> link, std::vector<int> members, int place, std::uint64_t channel)
      : LocalMembers(GroupLayout::one_each(static_cast<int>(members.size()), place)),
        link_(std::move(link)),
        members_(std::move(members)),
        user_(link_->cancellation()),
        key_(channel) {
    for (const int member : members_) key_ = key_.fold(static_cast<std::uint64_t>(member));
  }

  void meet(int, std::uint64_t mark, const Verb& verb) override {
    if (members_.size() == 1) user_.check();  // it sends no message, which would do so
    const Verb* const own = &verb;
    run_all(mark, {&own, 1});
  }
  std::shared_ptr<LocalMembers> subgroup(std::span<const int> members, int place,
                                         std::uint64_t channel) override {
    std::vector<int> on_link;
    for (const int member : members) on_link.push_back(rank_of(static_cast<std::size_t>(member)));
    return std::make_shared<Member>(link_, std::move(on_link), place, channel);
  }
  bool is_network() const noexcept override { return true; }
  const Ledger& ledger() const noexcept override { return link_->ledger(); }

 protected:
  Link& link() const { return *link_; }
  Cancellation& user() { return user_; }
  /// Tells this group's messages from those of others.
  const Key& key() const { return key_; }
  /// The key of the next transfer().
  Key next_key(std::uint64_t mark) { return key_.fold(sequence_++).fold(mark); }
  /// The rank on the link of the member at `place`.
  int rank_of(std::size_t place) const { return members_[place]; }
  /// Calls body(place) for the others. The next one comes first, so that not all send to the same
  /// one at once.
  void for_others(const auto& body) const {
    for (std::size_t step = 1; step < members_.size(); ++step) {
      body((layout().own() + step) % members_.size());
    }
  }

 private:
  std::shared_ptr<Link> link_;
  std::vector<int> members_;
  Cancellation user_;
  Key key_;
  std::uint64_t sequence_ = 0;
};

}  // namespace lockstep::comm
