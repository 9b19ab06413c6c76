#include "framework/comm/network/tcp_communicator.h"

#include <algorithm>
#include <deque>
#include <exception>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include "framework/base/random.h"
#include "framework/base/range.h"
#include "framework/base/text.h"
#include "framework/comm/network_communicator.h"

namespace lockstep::comm {

class TcpCommunicator final : public NetworkCommunicator {
 public:
  TcpCommunicator(std::shared_ptr<TcpLink> link, std::vector<int> members, int place,
                  std::uint64_t channel)
      : NetworkCommunicator(std::move(members), place, channel, link->cancellation()),
        link_(std::move(link)) {
    link_->begin_group(key().bits());
  }

  void interrupt(const std::exception_ptr& error) noexcept override {
    if (user().cancel(error)) link_->end_group(key().bits());
  }
  void abort(const std::string& reason) noexcept override {
    if (link_->cancellation()->cancel(reason)) link_->wake();
  }
  LinkSpeed link_speed() const override { return link_->speed(); }
  void set_link_speed(const LinkSpeed& speed) override { link_->set_speed(speed); }
  const Ledger& ledger() const noexcept override { return link_->ledger(); }

 private:
  void send_and_receive(const Key& tag, std::span<const ConstBytes> sent,
                        std::span<const Bytes> received) override {
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
    link_->exchange(user(), key().bits(), messages);
  }
  std::shared_ptr<Communicator> do_subgroup(std::span<const int> members, int own_place,
                                            std::uint64_t channel) override {
    return std::make_shared<TcpCommunicator>(link_, ranks_of(members), own_place, channel);
  }

  std::shared_ptr<TcpLink> link_;
};

std::shared_ptr<Communicator> connect_tcp(std::shared_ptr<Store> store, int rank, int size,
                                          const NetworkOptions& network,
                                          const ConnectOptions& options) {
  require(rank >= 0 && rank < size, "connect_tcp: rank ", rank, " is not in a group of ", size);
  auto link = std::make_shared<TcpLink>(std::move(store), rank, size, network, options);
  return std::make_shared<TcpCommunicator>(std::move(link), consecutive(0, size), rank, 0);
}

}  // namespace lockstep::comm
