#pragma once

#include <atomic>
#include <chrono>
#include <cstdint>
#include <exception>
#include <memory>
#include <mutex>
#include <string>
#include <vector>

#include "framework/base/errors.h"
#include "framework/comm/communicator.h"
#include "framework/comm/shared/flag.h"
#include "framework/comm/shared/host_memory.h"
#include "framework/comm/shared/shared_communicator.h"

namespace lockstep {

/// A ReplicaLost of one whose process has ended: all that it will ever have done is done.
class ProcessEnded final : public ReplicaLost {
 public:
  using ReplicaLost::ReplicaLost;
};

/// What the groups of one replica share: the memory, who the others are, and what ends it.
class SharedLink {
 public:
  SharedLink(std::shared_ptr<HostMemory> memory, Store& store, int rank, int size,
             const ConnectOptions& options);
  ~SharedLink();
  SharedLink(const SharedLink&) = delete;
  SharedLink& operator=(const SharedLink&) = delete;

  [[nodiscard]] HostMemory& memory() const noexcept { return *memory_; }
  [[nodiscard]] Ledger& ledger() noexcept { return ledger_; }

  /// One of those who wait on the link: it can be interrupted without the others.
  struct User {
    std::atomic<bool> ended{false};
    std::exception_ptr error;  // guarded by the link's mutex
  };
  void abort(const std::string& reason) noexcept;
  void interrupt(User& user, const std::exception_ptr& error) noexcept;
  /// Throws what ended the user, if something did.
  void check(const User& user);

  /// Waits until the flag of replica `peer`, one of `group`, has reached `round`. Throws
  /// ProcessEnded if one of the group has died before that, Timeout, or what ended the user.
  /// With `same_core` the peer was on this thread's core when it was last heard of.
  void wait(const User& user, const Flag& flag, std::uint32_t round, int peer,
            const std::vector<int>& group, bool same_core);

 private:
  [[nodiscard]] int lost_one_of(const std::vector<int>& group) const;

  std::shared_ptr<HostMemory> memory_;
  int rank_;
  std::chrono::milliseconds timeout_;
  bool has_own_core_;           // or so it could be
  std::vector<int> processes_;  // by rank: a pidfd; -1 for those of this process
  Ledger ledger_;
  std::mutex mutex_;  // guards what follows, and the users' errors
  std::atomic<bool> aborted_{false};
  std::string abort_reason_;
};

}  // namespace lockstep
