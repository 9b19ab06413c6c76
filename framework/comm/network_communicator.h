#pragma once

#include <cstddef>
#include <cstdint>
#include <exception>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "framework/base/bytes.h"
#include "framework/comm/communicator.h"
#include "framework/comm/message_link.h"
#include "framework/comm/schedule_choice.h"
#include "framework/comm/scratch.h"

namespace lockstep::comm {

/// A group whose members send each other messages over a link, by the schedules of ScheduleChoice.
class NetworkCommunicator final : public Communicator {
 public:
  /// `members` are the group's ranks on the link, in its order.
  NetworkCommunicator(std::shared_ptr<MessageLink> link, std::vector<int> members, int place,
                      std::uint64_t channel);

  void run(const Verb& verb) override;
  void interrupt(const std::exception_ptr& error) noexcept override {
    if (messages_.user.cancel(error)) link_->end(messages_);
  }
  void abort(const std::string& reason) noexcept override {
    if (link_->cancellation()->cancel(reason)) link_->end_all();
  }
  [[nodiscard]] bool is_network() const noexcept override { return true; }
  [[nodiscard]] bool shares_memory() const noexcept override { return false; }
  [[nodiscard]] LinkSpeed link_speed() const override { return link_->speed(); }
  void set_link_speed(const LinkSpeed& speed) override { link_->set_speed(speed); }
  [[nodiscard]] double all_reduce_seconds(std::size_t bytes) const override {
    return ScheduleChoice(size(), link_speed()).all_reduce_seconds(bytes);
  }
  [[nodiscard]] const Ledger& ledger() const noexcept override { return link_->ledger(); }

 private:
  class Rounds;

  [[nodiscard]] std::shared_ptr<Communicator> do_subgroup(std::span<const int> members,
                                                          int own_place,
                                                          std::uint64_t channel) override;
  [[nodiscard]] std::size_t me() const { return static_cast<std::size_t>(rank()); }
  const ScheduleChoice& schedules();
  void exchange(std::span<const ConstBytes> sent, std::span<const Bytes> received);
  void all_reduce(const Verb& verb);
  void reduce_scatter(const Verb& verb);
  void all_gather(const Verb& verb);
  void all_to_all(const Verb& verb);
  void broadcast(const Verb& verb);

  std::shared_ptr<MessageLink> link_;
  std::vector<int> members_;
  MessageGroup messages_;
  std::uint64_t exchanges_ = 0;
  std::uint64_t verb_mark_ = 0;
  Scratch scratch_;
  std::optional<ScheduleChoice> schedules_;
};

}  // namespace lockstep::comm
