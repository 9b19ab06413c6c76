#pragma once

#include <chrono>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "framework/base/errors.h"
#include "framework/comm/network/host_and_port.h"
#include "framework/comm/network/link.h"
#include "framework/comm/network/secret.h"

namespace lockstep::comm {

/// Connects to a Listener, and tries again until `timeout` is over if there is none yet. With `job`
/// it must be of that job, and have published this address: throws ReplicaLost if nobody listens
/// there any more. Throws Timeout, and CommError if the name is not known, or if the other end is
/// no Lockstep, or has another secret, job or version of the protocol.
[[nodiscard]] std::unique_ptr<Link> connect(const HostAndPort& to, const Secret& secret,
                                            std::chrono::milliseconds timeout,
                                            const std::optional<JobId>& job = std::nullopt);

/// The error for a Listener of the same job, by its name, that has another secret.
class OtherSecret : public CommError {
 public:
  using CommError::CommError;
};

/// A launcher's search for its job's host 0, which listens.
struct Search {
  std::chrono::steady_clock::time_point begin = std::chrono::steady_clock::now();
  std::chrono::milliseconds timeout{};  ///< from `begin` on
  std::string job_name{};               ///< the same as the Listener's
  std::string unknown_name_hint{};      ///< added to the reason if a name is not known
  /// Called after each try in vain, with the reason.
  std::function<void(const std::string& missing)> tell{};
};
/// Connects to a Listener with the secret and the job's name at one of the places, which it tries
/// in turn. Until the timeout a missing Listener may come, and another one at its place may go.
/// Unknown names are looked up again, at most twice a second, once for all their places. Throws
/// Timeout with the last reason. Throws OtherSecret if a Listener of the job has had another secret
/// for 3 s, which has to be mended by hand.
[[nodiscard]] std::unique_ptr<Link> find_listener(const std::vector<HostAndPort>& places,
                                                  const Secret& secret, const Search& search);

}  // namespace lockstep::comm
