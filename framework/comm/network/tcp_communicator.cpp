#include "framework/comm/network/tcp_communicator.h"

#include <algorithm>
#include <deque>
#include <exception>
#include <numeric>
#include <optional>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include "framework/base/random.h"
#include "framework/base/text.h"
#include "framework/comm/cancellation.h"
#include "framework/comm/hierarchy.h"

namespace lockstep::comm {

// A member alone in its process. Messages to the others' processes go over the link.
class TcpMember final : public LocalMembers {
 public:
  TcpMember(std::shared_ptr<TcpLink> link, std::vector<int> members, int place,
            std::uint64_t channel)
      : LocalMembers(GroupLayout::one_each(static_cast<int>(members.size()), place)),
        link_(std::move(link)),
        members_(std::move(members)),
        user_(link_->cancellation()),
        key_(channel) {
    for (const int member : members_) key_ = key_.fold(static_cast<std::uint64_t>(member));
    link_->begin_group(key_.bits());
  }

  void meet(int, std::uint64_t mark, const Verb& verb) override {
    if (members_.size() == 1) user_.check();  // it sends no message, which would do so
    const Verb* const own = &verb;
    run_all(mark, {&own, 1});
  }
  std::shared_ptr<LocalMembers> subgroup(std::span<const int> members, int place,
                                         std::uint64_t channel) override {
    std::vector<int> in_world;
    for (const int member : members) in_world.push_back(world(static_cast<std::size_t>(member)));
    return std::make_shared<TcpMember>(link_, std::move(in_world), place, channel);
  }
  void interrupt(const std::exception_ptr& error) noexcept override {
    if (!user_.cancel(error)) return;
    link_->end_group(key_.bits());
    link_->wake();
  }
  void abort(const std::string& reason) noexcept override {
    if (link_->cancellation()->cancel(reason)) link_->wake();
  }
  bool is_network() const noexcept override { return true; }
  std::optional<LinkSpeed> link_speed() const override { return link_->speed(); }
  void set_link_speed(const LinkSpeed& speed) override { link_->set_speed(speed); }
  const Ledger& ledger() const noexcept override { return link_->ledger(); }

 private:
  // Messages go to the next replica first, so that not all send to the same one at once.
  void transfer(std::uint64_t mark, std::span<const ConstBytes> sent,
                std::span<const Bytes> received) override {
    const Key tag = key_.fold(sequence_++).fold(mark);
    std::deque<TcpMessage> messages;
    const auto add = [&](std::size_t place, ConstBytes out, Bytes in) {
      const std::size_t bytes = std::max(out.size(), in.size());
      if (bytes == 0) return;
      // Messages of different sizes never meet: replicas that are out of step wait instead of
      // reading each other's bytes as something else.
      messages.push_back({.peer = world(place),
                          .is_received = out.empty(),
                          .sent = out,
                          .received = in,
                          .group = key_.bits(),
                          .slot = tag.fold(bytes).bits(),
                          .wait = nullptr});
    };
    for (std::size_t step = 1; step < members_.size(); ++step) {
      const std::size_t place = (layout().own() + step) % members_.size();
      add(place, sent[place], {});
      add(place, {}, received[place]);
    }
    link_->exchange(user_, key_.bits(), messages);
  }

  int world(std::size_t place) const { return members_[place]; }

  std::shared_ptr<TcpLink> link_;
  std::vector<int> members_;  // their ranks on the link, in the group's order
  Cancellation user_;
  Key key_;  // tells this group's messages from those of others
  std::uint64_t sequence_ = 0;
};

std::shared_ptr<Communicator> connect_tcp(std::shared_ptr<Store> store, int rank, int size,
                                          const NetworkOptions& network,
                                          const ConnectOptions& options) {
  require(rank >= 0 && rank < size, "connect_tcp: rank ", rank, " is not in a group of ", size);
  std::vector<int> everyone(static_cast<std::size_t>(size));
  std::iota(everyone.begin(), everyone.end(), 0);
  auto link = std::make_shared<TcpLink>(std::move(store), rank, size, network, options);
  return std::make_shared<Hierarchy>(
      std::make_shared<TcpMember>(std::move(link), std::move(everyone), rank, 0), rank);
}

}  // namespace lockstep::comm
