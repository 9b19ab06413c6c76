#include "framework/comm/gloo/gloo_communicator.h"

#include <cstdint>
#include <utility>
#include <vector>

#include "framework/base/bytes.h"
#include "framework/base/random.h"
#include "framework/base/text.h"
#include "framework/comm/hierarchy.h"

namespace lockstep {
namespace {

class GlooCommunicator final : public Communicator {
 public:
  GlooCommunicator(std::shared_ptr<GlooLink> link, std::vector<int> members, int rank,
                   std::uint64_t channel)
      : Communicator(rank, static_cast<int>(members.size())),
        link_(std::move(link)),
        members_(std::move(members)),
        key_(channel),
        hierarchy_(
            GroupLayout::one_each(size(), rank),
            [this](const auto& out, auto& in, Scratch& scratch) { exchange(out, in, scratch); }) {
    for (const int member : members_) key_ = key_.fold(static_cast<std::uint64_t>(member));
  }

  void run(const Verb& verb) override {
    if (size() == 1) link_->check(user_);  // it sends no message, which would do so
    const Verb* const own = &verb;
    hierarchy_.run({&own, 1});
  }

  void abort(const std::string& reason) noexcept override { link_->abort(reason); }
  void interrupt(const std::exception_ptr& error) noexcept override {
    link_->interrupt(user_, error);
  }
  bool is_network() const noexcept override { return true; }
  const Ledger& ledger() const noexcept override { return link_->ledger(); }

 private:
  int world(int place) const { return members_[static_cast<std::size_t>(place)]; }
  std::uint64_t next_tag() { return key_.fold(sequence_++).fold(current_mark()).bits(); }

  // The other replicas, starting with the next: so that not all send to the same one at once.
  void exchange(const Hierarchy::Outbox& out, Hierarchy::Inbox& in, Scratch& scratch) {
    std::vector<GlooLink::Outgoing> outgoing;
    std::vector<GlooLink::Incoming> incoming;
    for (int step = 1; step < size(); ++step) {
      const int place = (rank() + step) % size();
      for (const ConstBytes piece : out[static_cast<std::size_t>(place)]) {
        outgoing.push_back({world(place), piece});
      }
      for (auto& piece : in[static_cast<std::size_t>(place)]) {
        if (piece.data == nullptr) piece.data = scratch.take(piece.size).data();
        incoming.push_back({world(place), {piece.data, piece.size}});
      }
    }
    link_->exchange(user_, next_tag(), outgoing, incoming);
  }

  std::shared_ptr<Communicator> do_subgroup(std::span<const int> members, int own_place,
                                            std::uint64_t channel) override {
    std::vector<int> in_world;
    for (const int member : members) in_world.push_back(world(member));
    return std::make_shared<GlooCommunicator>(link_, std::move(in_world), own_place, channel);
  }

  std::shared_ptr<GlooLink> link_;
  std::vector<int> members_;  // their ranks on the link, in the group's order
  GlooLink::User user_;
  Key key_;  // tells this group's messages from those of others
  std::uint64_t sequence_ = 0;
  Hierarchy hierarchy_;
};

}  // namespace

std::shared_ptr<Communicator> connect_gloo(std::shared_ptr<Store> store, int rank, int size,
                                           const ConnectOptions& options) {
  require(rank >= 0 && rank < size, "connect_gloo: rank ", rank, " is not in a group of ", size);
  auto link = std::make_shared<GlooLink>(std::move(store), rank, size, options);
  std::vector<int> everyone;
  for (int member = 0; member < size; ++member) everyone.push_back(member);
  return std::make_shared<GlooCommunicator>(std::move(link), std::move(everyone), rank, 0);
}

}  // namespace lockstep
