#pragma once

#include <chrono>
#include <condition_variable>
#include <cstddef>
#include <cstdint>
#include <exception>
#include <map>
#include <memory>
#include <mutex>
#include <span>
#include <string>
#include <thread>
#include <vector>

#include "framework/comm/communicator.h"
#include "framework/comm/store.h"

namespace gloo::transport {
class Context;
class Device;
class UnboundBuffer;
}  // namespace gloo::transport

namespace lockstep {

/// One replica's TCP connections to all others, over Gloo's transport: a full mesh of pairs that
/// found each other through a store. It moves messages and does not know what they mean.
class GlooLink {
 public:
  struct Outgoing {
    int peer;
    std::span<const std::byte> data;
  };
  struct Incoming {
    int peer;
    std::span<std::byte> data;
  };

  /// Connects to the `size` - 1 others, which do the same with the same store. Throws Timeout if
  /// one does not come, CommError if the address cannot be used.
  GlooLink(std::shared_ptr<Store> store, int rank, int size, const ConnectOptions& options);
  ~GlooLink();
  GlooLink(const GlooLink&) = delete;
  GlooLink& operator=(const GlooLink&) = delete;

  /// A user of the link. Its messages can be interrupted without those of others.
  struct User {
    std::exception_ptr error;
  };

  /// Sends and receives; returns when every message has come and gone. A message meets the one with
  /// the same `tag` and size on the other side, in the order given here. Both sides leave out empty
  /// messages. A user has one exchange at a time.
  void exchange(const User& user, std::uint64_t tag, std::span<const Outgoing> outgoing,
                std::span<const Incoming> incoming);

  /// Throws what ended the user, if something did.
  void check(const User& user);

  /// See Communicator::abort and Communicator::interrupt. A message that is posted more than a
  /// moment after its peer was interrupted may break the connection. Callers avoid that by
  /// Board::published.
  void abort(const std::string& reason) noexcept;
  void interrupt(User& user, const std::exception_ptr& error) noexcept;

  [[nodiscard]] const Ledger& ledger() const noexcept { return ledger_; }

 private:
  struct Message;

  void connect(Store& store, const ConnectOptions& options);
  void watch();
  // Ends the messages that take longer than the timeout. Gloo would count pauses of the process.
  void look_at_the_clock();
  // The connection to `peer` has ended: ends the messages that were under way on it.
  void lose(int peer, const std::string& reason);
  [[nodiscard]] bool has_lost(int peer);
  // Ends the messages under way that `which` picks. Called with mutex_ held.
  template <typename Which>
  void end_messages(const Which& which);
  // check(), with mutex_ held.
  void throw_if_ended(const User& user) const;
  // Runs `step` of a message's transfer; what goes wrong in it becomes an error of ours.
  template <typename Step>
  void guarded(const Message& message, const Step& step);

  int rank_;
  int size_;
  std::chrono::milliseconds timeout_;
  std::shared_ptr<gloo::transport::Device> device_;
  std::shared_ptr<gloo::transport::Context> context_;
  Ledger ledger_;

  std::thread watcher_;
  std::thread clock_;

  std::mutex mutex_;  // guards what follows, and the users' errors
  bool aborted_ = false;
  std::string abort_reason_;
  std::vector<Message*> in_flight_;
  std::map<int, std::string> lost_;  // peers, and what Gloo says of it
  bool closing_ = false;
  std::condition_variable closing_changed_;
  gloo::transport::UnboundBuffer* watched_ = nullptr;  // what the watcher waits for
};

}  // namespace lockstep
