#pragma once

#include <cstdint>
#include <exception>
#include <memory>
#include <span>
#include <string>

#include "framework/base/errors.h"
#include "framework/groups/local_group.h"

namespace lockstep {

/// The Communicator of the replicas that a collective works on: threads of this worker, of others,
/// or both. Calls are announced on the Board before data moves, so that replicas which are out of
/// step find out. Used by one replica's thread.
class ReplicaGroup final : public Communicator {
 public:
  ReplicaGroup(std::shared_ptr<LocalGroup> local, const Member& member, int place);

  /// Brackets the verbs of one call of a collective, which `call` describes.
  void begin(const CallRecord& call);
  void end() { member_.seat->finish(); }

  /// Which of its replicas are in which worker.
  [[nodiscard]] const GroupLayout& layout() const noexcept { return local_->layout(); }

  void run(const Verb& verb) override;

  void abort(const std::string& reason) noexcept override {
    interrupt(std::make_exception_ptr(Aborted(reason)));
  }
  void interrupt(const std::exception_ptr& error) noexcept override { local_->interrupt(error); }
  [[nodiscard]] bool is_network() const noexcept override { return local_->is_network(); }
  [[nodiscard]] const Ledger& ledger() const noexcept override { return local_->ledger(); }

 private:
  [[nodiscard]] std::shared_ptr<Communicator> do_subgroup(std::span<const int> members,
                                                          int own_place,
                                                          std::uint64_t channel) override;

  std::shared_ptr<LocalGroup> local_;
  const Member& member_;
  std::uint64_t verbs_ = 0;
};

}  // namespace lockstep
