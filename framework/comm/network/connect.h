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
  std::chrono::steady_clock::time_point begin = std::chrono::steady_clock::now();
  std::chrono::milliseconds timeout{};  ///< since then
  std::string job_name{};               ///< as the Listener's
  std::string unknown_name_hint{};      ///< what else to say where a name is not known
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

}  // namespace lockstep::comm
