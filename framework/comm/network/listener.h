#pragma once

#include <chrono>
#include <cstddef>
#include <cstdint>
#include <list>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "framework/base/descriptor.h"
#include "framework/base/errors.h"
#include "framework/base/non_copyable.h"
#include "framework/base/poll_set.h"
#include "framework/comm/network/greeting.h"
#include "framework/comm/network/host_and_port.h"
#include "framework/comm/network/link.h"
#include "framework/comm/network/secret.h"

namespace lockstep::comm {

/// The error for an address on which somebody else listens.
class AddressInUse : public CommError {
 public:
  using CommError::CommError;
};
/// The error for a name that has no address here, or none yet.
class NameUnknown : public CommError {
 public:
  using CommError::CommError;
};

/// A server to which launchers of a job connect. Strangers get no further than a greeting, in
/// bounded memory and time: when too many are there, the oldest of the address that has the most
/// goes. No method blocks. One thread, which polls, may use it.
class Listener : private NonCopyable {
 public:
  struct Limits {
    std::size_t most_unproved = 64;            ///< connections that have not proved the secret
    std::chrono::milliseconds patience{5000};  ///< for the proof
  };

  /// Listens on an address of this host; port 0 is any that is free. A name that stands for another
  /// host here, or for this host's loopback (but "localhost"), can't be meant: then it listens on
  /// all addresses. `job_name` tells the job from the user's others and is the same on all
  /// launchers; "" tells nothing. Throws CommError, naming address and reason, if it can't listen:
  /// AddressInUse, NameUnknown or another.
  Listener(const HostAndPort& at, const Secret& secret, const JobId& job, Limits limits,
           const std::string& job_name = {});
  ~Listener();

  [[nodiscard]] std::uint16_t port() const noexcept { return port_; }
  /// Returns why it listens on all addresses though none of them was asked for, and how to change
  /// that; "" otherwise.
  [[nodiscard]] const std::string& why_all() const noexcept { return why_all_; }
  /// Adds the descriptors to poll, for when() at most.
  void add_to(PollSet& polled, const PollSet::Handler& handler = {}) const;
  /// Returns the time until progress() is due though nothing has come.
  [[nodiscard]] std::chrono::milliseconds when() const;
  /// Does as much as it can now. Returns the links that have been proved.
  [[nodiscard]] std::vector<std::unique_ptr<Link>> progress();
  /// Returns the address of the last connector of this job's name with another secret, or "".
  [[nodiscard]] const std::string& other_secret() const noexcept { return other_secret_; }
  /// Returns the number of connections that have not proved the secret.
  [[nodiscard]] std::size_t unproved() const noexcept { return strangers_.size(); }

 private:
  struct Stranger;

  void listen(const HostAndPort& at);
  void accept_all();
  void make_room();
  // Returns true if the stranger has proved the secret, or is to go.
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
