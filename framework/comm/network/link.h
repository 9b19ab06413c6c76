#pragma once

#include <array>
#include <chrono>
#include <cstddef>
#include <cstdint>
#include <deque>
#include <memory>
#include <optional>
#include <string>
#include <string_view>

#include "framework/base/descriptor.h"
#include "framework/base/non_copyable.h"
#include "framework/base/poll_set.h"
#include "framework/base/record.h"
#include "framework/comm/network/secret.h"

namespace lockstep::comm {

/// The identity of one of a user's jobs, drawn at random.
using JobId = std::array<std::byte, 16>;
[[nodiscard]] JobId new_job_id();

/// The address on which a process listens for the others of its job.
struct NetworkOptions {
  std::string address{};  ///< numeric, of this host
  Secret secret{};
  JobId job{};
  LOCKSTEP_FIELDS(address, secret, job)
};

/// Lets the system ask the other end of a silent connection once a second, and close the connection
/// when `probes` (1 to 120) of these have no answer: then the other host has gone.
void keep_alive(int socket, std::int64_t probes) noexcept;

/// One end of a TCP connection between two processes of a job. Both have proved that they know the
/// secret. It carries whole messages, in order. Each has a Mac: a message that was changed, left
/// out, repeated or put in on the way closes the link. Messages can be read on the way. No method
/// blocks. One thread, which polls, may use it.
class Link : private NonCopyable {
 public:
  /// Bytes of a message, and of all messages that wait to be sent.
  static constexpr std::size_t kLongestMessage = std::size_t{1} << 20;
  static constexpr std::size_t kMostQueued = std::size_t{64} << 20;

  /// Returns what to poll for: a negative descriptor once the link is closed.
  [[nodiscard]] pollfd polled() const noexcept;
  /// Queues a message for progress(). Too many close the link. Throws ValueError if it is too long.
  void send(std::string_view message);
  /// Sends and receives as much as it can now.
  void progress();
  /// Returns the next message that has come.
  [[nodiscard]] std::optional<std::string> receive();

  /// Closes the link, from now on, if the other host's system does not answer for `limit`. The
  /// system of a paused process answers. Launchers ask for this when they meet.
  void limit_silence(std::chrono::milliseconds limit) noexcept;

  [[nodiscard]] bool is_open() const noexcept { return socket_.open(); }
  /// Sends what is queued, and gives the connection to the caller, who reads and writes it from
  /// here on, without Macs. If the queue does not go out at once, or a message was not taken
  /// yet, closes the link instead, and returns a negative descriptor.
  [[nodiscard]] Descriptor release();

  /// Returns the reason why the link has closed.
  [[nodiscard]] const std::string& why_closed() const noexcept { return why_closed_; }
  /// Returns the other end's address and port, for people.
  [[nodiscard]] const std::string& peer() const noexcept { return peer_; }
  [[nodiscard]] const JobId& job() const noexcept { return job_; }
  /// Returns this end's numeric address, by which the other end reaches this host.
  [[nodiscard]] std::string own_address() const;

 private:
  friend class Listener;
  friend class Connector;
  enum class End : unsigned char { listener, connector };

  Link(Descriptor socket, std::string peer, const JobId& job, const Secret& key, End own);
  void close(std::string why) noexcept;
  void send_queued();
  void receive_more();
  void take_messages();
  [[nodiscard]] Mac mac_of(End sender, std::uint64_t number, std::string_view message) const;

  Descriptor socket_;
  std::string peer_;
  JobId job_;
  Secret key_;  // of this connection alone
  End own_;
  std::uint64_t sent_ = 0;
  std::uint64_t received_ = 0;
  std::string out_;
  std::size_t out_begin_ = 0;
  std::string in_;
  std::deque<std::string> messages_;
  std::string why_closed_;
};

}  // namespace lockstep::comm
