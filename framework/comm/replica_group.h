#pragma once

#include <cstdint>
#include <memory>
#include <string>

#include "framework/comm/site.h"

namespace lockstep {

/// The replicas that a collective works on as one of them sees them: threads of this process, of
/// others, or both. Calls are announced before data moves, so that replicas which are out of step
/// find out: see Board. Used by the replica's thread.
class ReplicaGroup final : public Communicator {
 public:
  ReplicaGroup(std::shared_ptr<Meeting> meeting, const Member& member, int place);

  /// Brackets the verbs of one call of a collective, which `call` describes.
  void begin(const CallRecord& call);
  void end();

  /// How many of its replicas are in this process.
  [[nodiscard]] int in_this_process() const noexcept;
  /// Which of these this one is, from 0.
  [[nodiscard]] int place_in_this_process() const noexcept;
  /// Whether any process has several of its replicas.
  [[nodiscard]] bool has_several_in_a_process() const;

  void abort(const std::string& reason) noexcept override;
  void interrupt(const std::exception_ptr& error) noexcept override;
  [[nodiscard]] bool is_network() const noexcept override { return meeting_->is_network(); }
  [[nodiscard]] const Ledger& ledger() const noexcept override { return meeting_->ledger(); }

 private:
  void meet(const Deposit& deposit);

  void do_all_reduce(std::span<const std::byte> input, std::span<std::byte> output,
                     ElementType type, ReduceOp op) override;
  void do_reduce_scatter(std::span<const std::byte> input, std::span<std::byte> output,
                         ElementType type, ReduceOp op) override;
  void do_all_gather(std::span<const std::byte> input, std::span<std::byte> output) override;
  void do_all_to_all(std::span<const std::byte> input, std::span<const std::size_t> send_sizes,
                     std::span<std::byte> output, std::span<const std::size_t> recv_sizes) override;
  void do_permute(std::span<const std::byte> input, int destination, std::span<std::byte> output,
                  int source) override;
  void do_broadcast(std::span<std::byte> data, int root) override;
  void do_barrier() override;
  [[nodiscard]] std::shared_ptr<SymmetricBuffer> do_allocate(std::size_t bytes,
                                                             Copies copies) override;
  [[nodiscard]] std::shared_ptr<Communicator> do_subgroup(std::span<const int> members,
                                                          int own_place,
                                                          std::uint64_t channel) override;

  std::shared_ptr<Meeting> meeting_;
  const Member& member_;
  std::uint64_t verbs_ = 0;
};

}  // namespace lockstep
