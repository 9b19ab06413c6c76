#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <optional>
#include <span>
#include <vector>

#include "framework/base/bytes.h"
#include "framework/base/random.h"
#include "framework/comm/cancellation.h"
#include "framework/comm/communicator.h"
#include "framework/comm/schedule_choice.h"
#include "framework/comm/scratch.h"

namespace lockstep::comm {

/// A group whose members send each other messages, by the schedules of ScheduleChoice. Derived
/// classes move the messages over a link, on which each member has a rank.
class NetworkCommunicator : public Communicator {
 public:
  /// `members` are the group's ranks on the link, in its order. Cancelling `link` ends its verbs.
  NetworkCommunicator(std::vector<int> members, int place, std::uint64_t channel,
                      std::shared_ptr<const Cancellation> link);

  void run(const Verb& verb) final;
  [[nodiscard]] bool is_network() const noexcept final { return true; }
  [[nodiscard]] bool shares_memory() const noexcept final { return false; }
  [[nodiscard]] double all_reduce_seconds(std::size_t bytes) const final;

 protected:
  /// Sends sent[p] to each other member p and receives received[p] from it; both sides leave out
  /// empty messages. They meet only messages with the same `tag`.
  virtual void send_and_receive(const Key& tag, std::span<const ConstBytes> sent,
                                std::span<const Bytes> received) = 0;

  Cancellation& user() { return user_; }
  /// Tells this group's messages from those of others.
  [[nodiscard]] const Key& key() const { return key_; }
  /// The rank on the link of the member at `place`.
  [[nodiscard]] int rank_of(std::size_t place) const { return members_[place]; }
  [[nodiscard]] std::vector<int> ranks_of(std::span<const int> places) const;
  /// Calls body(place) for the others. The next one comes first, so that not all send to the same
  /// one at once.
  void for_others(const auto& body) const {
    for (std::size_t step = 1; step < members_.size(); ++step)
      body((me() + step) % members_.size());
  }

 private:
  class Rounds;

  [[nodiscard]] std::size_t me() const { return static_cast<std::size_t>(rank()); }
  const ScheduleChoice& schedules();
  void exchange(std::span<const ConstBytes> sent, std::span<const Bytes> received) {
    send_and_receive(key_.fold(exchanges_++).fold(verb_mark_), sent, received);
  }
  void all_reduce(const Verb& verb);
  void reduce_scatter(const Verb& verb);
  void all_gather(const Verb& verb);
  void all_to_all(const Verb& verb);
  void broadcast(const Verb& verb);

  std::vector<int> members_;
  Cancellation user_;
  Key key_;
  std::uint64_t exchanges_ = 0;
  std::uint64_t verb_mark_ = 0;
  Scratch scratch_;
  std::optional<ScheduleChoice> schedules_;
};

}  // namespace lockstep::comm
