#pragma once

#include <atomic>
#include <cstdint>
#include <deque>
#include <exception>
#include <memory>
#include <optional>
#include <set>
#include <span>
#include <stop_token>
#include <string>
#include <thread>
#include <vector>

#include "framework/base/descriptor.h"
#include "framework/base/mutex.h"
#include "framework/comm/message_link.h"
#include "framework/comm/network/link.h"
#include "framework/comm/network/tcp_connection.h"
#include "framework/comm/store.h"

namespace lockstep::comm {

/// Messages over TCP connections. Each is made when a message for it is posted first, by whichever
/// side does so; the processes find each other through a store.
///
/// A thread accepts, sends and receives. So messages move while callers compute, and strangers are
/// dealt with. Another one connects.
class TcpLink final : public MessageLink {
 public:
  /// Process `rank` of `size`: publishes "address/<rank>" in the store. With one process there are
  /// no threads and no address. CommError if the address is not one of this host.
  TcpLink(std::shared_ptr<Store> store, int rank, int size, const NetworkOptions& network,
          const ConnectOptions& options);
  /// Says goodbye to the others. Nobody may be in exchange().
  ~TcpLink() override;

  [[nodiscard]] LinkSpeed speed() const override {
    const MutexLock lock(speed_mutex_);
    return speed_;
  }
  void set_speed(const LinkSpeed& speed) override {
    const MutexLock lock(speed_mutex_);
    speed_ = speed;
  }

  /// A Timeout if no byte of these messages has moved for the timeout. Time in which a replica has
  /// not published its address yet counts towards connect_timeout alone. When this has thrown, the
  /// group is dead: what still comes for it is dropped.
  void exchange(const MessageGroup& group, const Key& tag,
                std::span<const PeerMessage> messages) override;
  void begin(const MessageGroup& group) override;
  /// Nobody will want what still comes for the group.
  void end(const MessageGroup& group) noexcept override;
  void end_all() noexcept override;

 private:
  struct Peer;
  struct Arrival;

  // For callers, so that the thread that sends and receives lets them in between.
  class Turn;

  [[nodiscard]] std::exception_ptr lost(int peer) const LOCKSTEP_REQUIRES(mutex_);
  void note_loss(Peer& peer) LOCKSTEP_REQUIRES(mutex_);
  void wait_for(const Cancellation& user, const std::deque<TcpMessage>& messages, TcpWait& wait,
                MutexLock& lock) LOCKSTEP_REQUIRES(mutex_);
  void wake_waits() LOCKSTEP_REQUIRES(mutex_);
  void wake_io() noexcept;
  void drop(std::uint64_t group) LOCKSTEP_REQUIRES(mutex_);
  void want(int peer) LOCKSTEP_REQUIRES(mutex_);
  void open(int peer, Descriptor socket, bool begins) LOCKSTEP_REQUIRES(mutex_);
  void fail(int peer, std::exception_ptr error) LOCKSTEP_REQUIRES(mutex_);

  // The thread that sends and receives.
  void run(const std::stop_token& stop);
  void accept();
  [[nodiscard]] std::string answer_to(const std::string& hello, int& peer)
      LOCKSTEP_REQUIRES(mutex_);
  void serve(Peer& peer, short events);
  void take_leave();

  // The thread that connects.
  void connect_wanted(const std::stop_token& stop);
  void connect_to(int peer, const std::stop_token& stop);
  void look_for(int peer);
  [[nodiscard]] std::string ask(Link& link, const std::stop_token& stop) const;

  const std::shared_ptr<Store> store_;
  const int rank_;
  const NetworkOptions network_;
  const ConnectOptions options_;
  mutable Mutex speed_mutex_;
  LinkSpeed speed_ LOCKSTEP_GUARDED_BY(speed_mutex_) = kLoopback;

  // Only the thread that sends and receives uses these.
  std::optional<Listener> listener_;
  std::vector<Arrival> arrivals_;

  Descriptor wake_;  // an eventfd
  std::atomic<int> callers_{0};

  Mutex mutex_;
  std::set<std::uint64_t> dead_ LOCKSTEP_GUARDED_BY(mutex_);
  // By rank. The list stays as it is; the mutex guards what is in a Peer, but its address.
  std::vector<std::unique_ptr<Peer>> peers_;
  std::set<TcpWait*> waits_ LOCKSTEP_GUARDED_BY(mutex_);
  // To whom there shall be a connection.
  std::deque<int> wanted_ LOCKSTEP_GUARDED_BY(mutex_);
  std::condition_variable_any wanted_changed_;

  std::jthread io_;
  std::jthread connector_;  // ends before the other
};

}  // namespace lockstep::comm
