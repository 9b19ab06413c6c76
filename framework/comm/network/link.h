#pragma once

#include <array>
#include <chrono>
#include <cstddef>
#include <cstdint>
#include <deque>
#include <functional>
#include <list>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "framework/base/descriptor.h"
#include "framework/base/errors.h"
#include "framework/base/non_copyable.h"
#include "framework/base/poll_set.h"
#include "framework/base/record.h"
#include "framework/comm/network/secret.h"

namespace lockstep::comm {

/// Which of a user's jobs: random.
using JobId = std::array<std::byte, 16>;
[[nodiscard]] JobId new_job_id();
/// What an engine calls it, filled up with zeros.
using JobName = std::array<char, 64>;

/// A host by its name or address, and a port.
struct HostAndPort {
  std::string host;
  std::uint16_t port = 0;

  /// "node0:29500", "[::1]:29500". ValueError, naming the text and the rule, for another form.
  [[nodiscard]] static HostAndPort parse(std::string_view text);
  [[nodiscard]] std::string text() const;
};

/// Whether a name or an address is one by which a host reaches itself alone.
[[nodiscard]] bool is_loopback(const std::string& host);

/// Where a process listens for the others of its job.
struct NetworkOptions {
  std::string address{};  ///< numeric, of this host
  Secret secret{};
  JobId job{};
  LOCKSTEP_FIELDS(address, secret, job)
};

/// Lets the system ask the other end of a silent connection once a second, and close the connection
/// when `probes` (1 to 120) of these have no answer: the other host has gone.
void keep_alive(int socket, std::int64_t probes) noexcept;

/// One end of a TCP connection between two processes of a job. Both have proved that they know the
/// secret. It carries whole messages, in order. Each has a Mac: what was changed, left out,
/// repeated or put in on the way closes the link. Messages can be read on the way. No method
/// blocks. For one thread, which polls.
class Link : private NonCopyable {
 public:
  /// Bytes of a message, and of all that wait to be sent.
  static constexpr std::size_t kLongestMessage = std::size_t{1} << 20;
  static constexpr std::size_t kMostQueued = std::size_t{64} << 20;

  /// What to poll for; a negative descriptor once it is closed.
  [[nodiscard]] pollfd polled() const noexcept;
  /// Queues a message. progress() sends it. Too many close the link. ValueError if it is too long.
  void send(std::string_view message);
  /// Sends and receives what can be now.
  void progress();
  /// The next message that has come.
  [[nodiscard]] std::optional<std::string> receive();

  /// From here on the link closes if the other host's system does not answer for `limit`. Where
  /// only the process is paused, it answers. Launchers ask for it when they meet.
  void limit_silence(std::chrono::milliseconds limit) noexcept;

  [[nodiscard]] bool is_open() const noexcept { return socket_.open(); }
  /// Sends what is queued, and gives the connection to the caller, who reads and writes it from
  /// here on, without Macs. If the queue does not go out at once, or a message was not taken
  /// yet, closes the link instead, and returns a negative descriptor.
  [[nodiscard]] Descriptor release();

  /// What has closed it.
  [[nodiscard]] const std::string& why_closed() const noexcept { return why_closed_; }
  /// For people: the other end's address and port.
  [[nodiscard]] const std::string& peer() const noexcept { return peer_; }
  [[nodiscard]] const JobId& job() const noexcept { return job_; }
  /// Numeric: this end's address, by which the other end reaches this host.
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

/// Connects to a Listener. One that is not there yet is tried again until `timeout` is over. With
/// `job` it must be of that job, where it has said that it listens: if nobody does any more, that
/// is a ReplicaLost. Throws Timeout, and CommError if the name is not known, or if the other end is
/// no Lockstep, or has another secret, job or version of the protocol.
[[nodiscard]] std::unique_ptr<Link> connect(const HostAndPort& to, const Secret& secret,
                                            std::chrono::milliseconds timeout,
                                            const std::optional<JobId>& job = std::nullopt);

/// Who listens there is of the same job, by its name, and has another secret.
class OtherSecret : public CommError {
 public:
  using CommError::CommError;
};

/// How a launcher looks for its job's host 0, which listens.
struct Search {
  std::chrono::milliseconds timeout{};
  std::string job_name{};           ///< as the Listener's
  std::string unknown_name_hint{};  ///< what else to say where a name is not known
  /// Called after each try in vain, with what is missing.
  std::function<void(const std::string& missing)> tell{};
};
/// Connects to a Listener of the secret and the job's name, at whichever of the places, which it
/// tries in turn. Until the timeout whatever is missing may come, and whoever else listens there
/// may go: names that are not known are looked up again, at most twice a second, once for all their
/// places. The Timeout says what was missing last. OtherSecret where that stays for 3 s: then it
/// has to be mended by hand.
[[nodiscard]] std::unique_ptr<Link> find_listener(const std::vector<HostAndPort>& places,
                                                  const Secret& secret, const Search& search);

/// Somebody else listens there.
class AddressInUse : public CommError {
 public:
  using CommError::CommError;
};
/// The name has no address here, or none yet.
class NameUnknown : public CommError {
 public:
  using CommError::CommError;
};

/// Where launchers of a job connect. Strangers get no further than a greeting, in bounded memory
/// and time: when too many are there, the oldest of the address that has the most goes. No method
/// blocks. For one thread, which polls.
class Listener : private NonCopyable {
 public:
  struct Limits {
    std::size_t most_unproved = 64;            ///< connections that have not proved the secret
    std::chrono::milliseconds patience{5000};  ///< for the proof
  };

  /// Listens on an address of this host; port 0 is any that is free. A name that is another host's
  /// here, or this host's loopback (but "localhost"), can't be meant: it then listens on all
  /// addresses. `job_name` is what tells the job from the user's others, the same for all who
  /// connect; "": nothing. CommError, naming the address and the reason, if it can't listen:
  /// AddressInUse, NameUnknown or another.
  Listener(const HostAndPort& at, const Secret& secret, const JobId& job, Limits limits,
           const std::string& job_name = {});
  ~Listener();

  [[nodiscard]] std::uint16_t port() const noexcept { return port_; }
  /// Why it listens on all addresses though none of them was asked for, and how to change that; ""
  /// otherwise.
  [[nodiscard]] const std::string& why_all() const noexcept { return why_all_; }
  /// Adds what to poll for, until when() at most.
  void add_to(PollSet& polled, const PollSet::Handler& handler = {}) const;
  /// How long until something is to be done though nothing has come.
  [[nodiscard]] std::chrono::milliseconds when() const;
  /// Goes on with what can be done now. Returns the links that have been proved.
  [[nodiscard]] std::vector<std::unique_ptr<Link>> progress();
  /// The address of the last one that was of the job, by its name, and had another secret; or "".
  [[nodiscard]] const std::string& other_secret() const noexcept { return other_secret_; }
  /// Connections that have not proved the secret.
  [[nodiscard]] std::size_t unproved() const noexcept { return strangers_.size(); }

 private:
  struct Stranger;

  void listen(const HostAndPort& at);
  void accept_all();
  void make_room();
  // Whether it is done with: proved, or not to be.
  bool examine(Stranger& stranger, std::vector<std::unique_ptr<Link>>& proved);

  Secret secret_;
  JobId job_;
  Limits limits_;
  JobName name_;
  Descriptor socket_;
  std::uint16_t port_ = 0;
  std::string why_all_;
  std::string other_secret_;
  std::list<Stranger> strangers_;                                     // from the oldest on
  std::optional<std::chrono::steady_clock::time_point> rests_until_;  // for want of descriptors
};

}  // namespace lockstep::comm
