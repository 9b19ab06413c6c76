#pragma once

#include <chrono>
#include <cstddef>
#include <cstdint>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <variant>
#include <vector>

#include "framework/base/errors.h"
#include "framework/base/poll_set.h"
#include "framework/base/record.h"
#include "framework/base/waited.h"
#include "framework/calls/job_watch.h"
#include "framework/calls/long_waits.h"
#include "framework/comm/network/link.h"
#include "framework/launch/job_plan.h"
#include "framework/timeline/job_trace.h"

namespace lockstep::launcher {

/// The end of a job, as one host reports it or as host 0 decides for all.
struct Ending {
  int status = 0;        ///< launch()'s status; 0: all functions have returned
  std::string text{};    ///< for people
  bool is_lost = false;  ///< a replica was lost: the job may start again
  int doubt = 0;         ///< see ErrorTraits
  LOCKSTEP_FIELDS(status, text, is_lost, doubt)
};

/// Values by name that must be the same on all hosts of a job.
using Facts = std::map<std::string, std::string>;

// Messages between launchers while they meet.

/// The message with which a launcher introduces itself to host 0.
struct Hello {
  std::size_t host = 0;
  std::int64_t replicas = 0;  ///< that the host asks for
  std::int64_t cores = 0;
  Facts facts;
  LOCKSTEP_FIELDS(host, replicas, cores, facts)
};
/// An error, or a signal, has ended the meeting.
struct Refused {
  ErrorKind kind = ErrorKind::error;
  int signal = 0;
  std::string text;
  LOCKSTEP_FIELDS(kind, signal, text)
};
/// Host 0's message: how the job begins, or begins again.
struct Begins {
  JobPlan plan;
  std::string told;
  std::string address{};  ///< host 0's, for launchers that reach it by loopback
  LOCKSTEP_FIELDS(plan, told, address)
};
/// The sender is ready for the run; from host 0: all hosts are.
struct Ready {
  LOCKSTEP_FIELDS()
};

// Messages between launchers while replicas run.

/// A sign of life. `is_held_up` is true while a print waits for its reader: on the sender's host,
/// or, from host 0, on any.
struct Alive {
  bool is_held_up = false;
  LOCKSTEP_FIELDS(is_held_up)
};
/// A value in the store of all hosts. Host 0 gets all values, and sends each to the hosts that want
/// it.
struct Published {
  std::string key;
  std::string value;
  LOCKSTEP_FIELDS(key, value)
};
/// A request to host 0: a worker of the sender asks for this key.
struct Wanted {
  std::string key;
  LOCKSTEP_FIELDS(key)
};
/// A signal asks replicas to end.
struct Asked {
  int signal = 0;
  LOCKSTEP_FIELDS(signal)
};
/// Hosts report a Stall and an Ending to host 0, which then tells all others.
using HostMessage = std::variant<Hello, Refused, Begins, Ready, Alive, Published, Wanted, Asked,
                                 calls::Stall, Ending, calls::TableMessage, timeline::TraceMessage>;

/// The links of host 0's launcher to all others, or theirs to it. Only flush() blocks. One thread.
class HostLinks {
 public:
  using Clock = std::chrono::steady_clock;
  static constexpr std::size_t kUnknown = ~std::size_t{0};

  struct Peer {
    std::size_t host;  ///< or kUnknown
    std::unique_ptr<comm::Link> link;
    std::int64_t run = -1;    ///< the last run for which the peer is ready
    Waited silent{};          ///< since the peer's last message
    bool is_held_up = false;  ///< as the peer's last Alive says
    std::string problem{};    ///< " is gone: …" once no more messages come from the peer

    /// Returns the peer's name in messages.
    [[nodiscard]] std::string name() const;
    void says_wrong(const DataError& error);
  };
  struct Heard {
    Peer* from;
    HostMessage message;
  };

  HostLinks(std::size_t own, std::size_t hosts) : own_(own), hosts_(hosts) {}

  /// Returns this host's number; hosts() is the number of hosts with which the job has begun.
  [[nodiscard]] std::size_t own() const noexcept { return own_; }
  [[nodiscard]] std::size_t hosts() const noexcept { return hosts_; }
  [[nodiscard]] std::vector<Peer>& peers() noexcept { return peers_; }
  [[nodiscard]] bool is_ready(const Peer& peer) const noexcept { return peer.run == run_; }
  /// Begins the next run: from here on receive() drops messages of earlier runs.
  void begin_run() noexcept { ++run_; }

  void add_to(PollSet& polled) const {
    for (const Peer& peer : peers_) polled.add(peer.link->polled());
  }
  /// Sends and receives as much as is possible without waiting.
  void progress();
  /// Returns the next message to this host, if one has come.
  [[nodiscard]] std::optional<Heard> receive();

  /// Sends to a host to which this one has a link.
  void send(std::size_t to, const HostMessage& message);
  /// Sends to host 0, or from host 0 to all others except `but`.
  void tell(const HostMessage& message, const Peer* but = nullptr);
  /// Waits until all messages are sent, for 0.5 s at most.
  void flush();

 private:
  struct Envelope {
    std::int64_t run = 0;
    HostMessage message;
    LOCKSTEP_FIELDS(run, message)
  };

  std::size_t own_;
  std::size_t hosts_;
  std::int64_t run_ = 0;  // counts restarts
  std::vector<Peer> peers_;
};

}  // namespace lockstep::launcher
