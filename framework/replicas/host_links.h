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
#include "framework/comm/network/link.h"
#include "framework/replicas/job_plan.h"
#include "framework/watch/job_trace.h"
#include "framework/watch/job_watch.h"
#include "framework/watch/long_waits.h"

namespace lockstep::replicas {

/// How a job ended, or what a host has to say of that.
struct Ending {
  int status = 0;        ///< launch()'s; 0: all functions have returned
  std::string text{};    ///< for people
  bool is_lost = false;  ///< whether a replica was lost: the job may start again
  int doubt = 0;         ///< see ErrorTraits
  LOCKSTEP_FIELDS(status, text, is_lost, doubt)
};

/// By name, what must be the same on all hosts of a job.
using Facts = std::map<std::string, std::string>;

// What launchers tell each other. While they meet:

/// To host 0: who this is.
struct Hello {
  std::size_t host = 0;
  std::int64_t replicas = 0;  ///< that it asks for
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
/// Of host 0: how the job begins, or begins again.
struct Begins {
  JobPlan plan;
  std::string told;
  std::string address{};  ///< of host 0, for launchers beside it, which reach it by loopback
  LOCKSTEP_FIELDS(plan, told, address)
};
/// This host is ready for the run; of host 0: all are.
struct Ready {
  LOCKSTEP_FIELDS()
};

// While replicas run:

/// Nothing else is to be said. A print waits for its reader: on this host, or as host 0 says, on
/// any.
struct Alive {
  bool is_held_up = false;
  LOCKSTEP_FIELDS(is_held_up)
};
/// A value in the store of all hosts: to host 0, which has all of them, and from there to each host
/// that wants it.
struct Published {
  std::string key;
  std::string value;
  LOCKSTEP_FIELDS(key, value)
};
/// To host 0: a worker here asks for this key.
struct Wanted {
  std::string key;
  LOCKSTEP_FIELDS(key)
};
/// A signal asks replicas to end.
struct Asked {
  int signal = 0;
  LOCKSTEP_FIELDS(signal)
};
/// A Stall and an Ending are reported to host 0, which then tells all others.
using HostMessage = std::variant<Hello, Refused, Begins, Ready, Alive, Published, Wanted, Asked,
                                 watch::Stall, Ending, watch::BoardMessage, watch::TraceMessage>;

/// Host 0's launcher's links to all others, or theirs to it. Only flush() blocks. For one thread.
class HostLinks {
 public:
  using Clock = std::chrono::steady_clock;
  static constexpr std::size_t kUnknown = ~std::size_t{0};

  struct Peer {
    std::size_t host;  ///< or kUnknown
    std::unique_ptr<comm::Link> link;
    std::int64_t run = -1;    ///< the last one for which it is ready
    Waited silent{};          ///< since it has said something
    bool is_held_up = false;  ///< as it has said last
    std::string problem{};    ///< " is gone: …" where nothing more is to come from it

    /// For messages.
    [[nodiscard]] std::string name() const;
    void says_wrong(const DataError& error);
  };
  struct Heard {
    Peer* from;
    HostMessage message;
  };

  HostLinks(std::size_t own, std::size_t hosts) : own_(own), hosts_(hosts) {}

  /// This host's number, and that of all hosts with which the job has begun.
  [[nodiscard]] std::size_t own() const noexcept { return own_; }
  [[nodiscard]] std::size_t hosts() const noexcept { return hosts_; }
  [[nodiscard]] std::vector<Peer>& peers() noexcept { return peers_; }
  [[nodiscard]] bool is_ready(const Peer& peer) const noexcept { return peer.run == run_; }
  /// What is said of runs before is not heard from here on.
  void begin_run() noexcept { ++run_; }

  void add_to(PollSet& polled) const {
    for (const Peer& peer : peers_) polled.add(peer.link->polled());
  }
  /// Sends and receives what can be now.
  void progress();
  /// What was said next to this host.
  [[nodiscard]] std::optional<Heard> receive();

  /// To a host to which this one has a link.
  void send(std::size_t to, const HostMessage& message);
  /// To host 0, or from there to all others, but not to `but`.
  void tell(const HostMessage& message, const Peer* but = nullptr);
  /// Goes on until what was said is sent, for a moment at most.
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

}  // namespace lockstep::replicas
