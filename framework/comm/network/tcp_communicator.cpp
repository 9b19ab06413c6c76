#include "framework/comm/network/tcp_communicator.h"

#include <algorithm>
#include <deque>
#include <exception>
#include <optional>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include "framework/base/random.h"
#include "framework/base/range.h"
#include "framework/base/text.h"
#include "framework/comm/cancellation.h"
#include "framework/comm/hierarchy.h"
#include "framework/comm/lone_member.h"

namespace lockstep::comm {

class TcpMember final : public LoneMember<TcpMember, TcpLink> {
 public:
  TcpMember(std::shared_ptr<TcpLink> link, std::vector<int> members, int place,
            std::uint64_t channel)
      : LoneMember(std::move(link), std::move(members), place, channel) {
    this->link().begin_group(key().bits());
  }

  void interrupt(const std::exception_ptr& error) noexcept override {
    if (!user().cancel(error)) return;
    link().end_group(key().bits());
    link().wake();
  }
  void abort(const std::string& reason) noexcept override {
    if (link().cancellation()->cancel(reason)) link().wake();
  }
  std::optional<LinkSpeed> link_speed() const override { return link().speed(); }
  void set_link_speed(const LinkSpeed& speed) override { link().set_speed(speed); }

 private:
  void transfer(std::uint64_t mark, std::span<const ConstBytes> sent,
                std::span<const Bytes> received) override {
    const Key tag = next_key(mark);
    std::deque<TcpMessage> messages;
    const auto add = [&](std::size_t place, ConstBytes out, Bytes in) {
      const std::size_t bytes = std::max(out.size(), in.size());
      if (bytes == 0) return;
      // Messages of different sizes never meet: replicas that are out of step wait instead of
      // reading each other's bytes as something else.
      messages.push_back({.peer = rank_of(place),
                          .is_received = out.empty(),
                          .sent = out,
                          .received = in,
                          .group = key().bits(),
                          .slot = tag.fold(bytes).bits(),
                          .wait = nullptr});
    };
    for_others([&](std::size_t place) {
      add(place, sent[place], {});
      add(place, {}, received[place]);
    });
    link().exchange(user(), key().bits(), messages);
  }
};

std::shared_ptr<Communicator> connect_tcp(std::shared_ptr<Store> store, int rank, int size,
                                          const NetworkOptions& network,
                                          const ConnectOptions& options) {
  require(rank >= 0 && rank < size, "connect_tcp: rank ", rank, " is not in a group of ", size);
  auto link = std::make_shared<TcpLink>(std::move(store), rank, size, network, options);
  return std::make_shared<Hierarchy>(
      std::make_shared<TcpMember>(std::move(link), consecutive(0, size), rank, 0), rank);
}

}  // namespace lockstep::comm
