#pragma once

#include <cstddef>
#include <memory>
#include <span>

#include "framework/base/bytes.h"
#include "framework/base/mutex.h"
#include "framework/base/non_copyable.h"
#include "framework/base/random.h"
#include "framework/comm/cancellation.h"
#include "framework/comm/communicator.h"

namespace lockstep::comm {

/// A group of processes, as its messages know it.
struct MessageGroup {
  Cancellation user;  ///< ends the group's verbs on this process
  Key key;            ///< tells the group's messages from others'
};

/// A message to or from the process `peer`: one of the buffers is empty.
struct PeerMessage {
  int peer;
  ConstBytes sent = {};
  Bytes received = {};

  [[nodiscard]] bool is_received() const noexcept { return sent.empty(); }
  [[nodiscard]] std::size_t bytes() const noexcept { return sent.size() + received.size(); }
};

/// One process' connections to the others of its job, which move messages. Each message belongs to
/// a group of processes, and one group's messages can be ended alone. Any thread may use it.
class MessageLink : private NonCopyable {
 public:
  virtual ~MessageLink() = default;

  /// Sends and receives; returns when every message has come and gone. A message meets the one with
  /// the same `tag` and size on the other side. A group has one exchange at a time. Throws the
  /// error that cancelled the group's user, or ReplicaLost or Timeout, naming both ranks.
  virtual void exchange(const MessageGroup& group, const Key& tag,
                        std::span<const PeerMessage> messages) = 0;
  /// Tells the link that a group begins.
  virtual void begin(const MessageGroup& /*group*/) {}
  /// Ends the messages of a group whose user was cancelled.
  virtual void end(const MessageGroup& group) noexcept = 0;
  /// Ends the messages of all groups, once cancellation() was cancelled.
  virtual void end_all() noexcept = 0;

  /// See Communicator.
  [[nodiscard]] LinkSpeed speed() const {
    const MutexLock lock(speed_mutex_);
    return speed_;
  }
  void set_speed(const LinkSpeed& speed) {
    const MutexLock lock(speed_mutex_);
    speed_ = speed;
  }

  [[nodiscard]] const Ledger& ledger() const noexcept { return ledger_; }
  [[nodiscard]] const std::shared_ptr<Cancellation>& cancellation() const noexcept {
    return cancellation_;
  }

 protected:
  Ledger ledger_;

 private:
  mutable Mutex speed_mutex_;
  LinkSpeed speed_ LOCKSTEP_GUARDED_BY(speed_mutex_) = kLoopback;
  const std::shared_ptr<Cancellation> cancellation_ = std::make_shared<Cancellation>();
};

}  // namespace lockstep::comm
