#pragma once

#include <array>
#include <cstddef>
#include <string>
#include <string_view>

#include "framework/base/record.h"
#include "framework/comm/network/link.h"
#include "framework/comm/network/secret.h"

// The greeting, by which two processes prove to each other that they know the secret of a job. A
// Link follows. All sizes are fixed, so that nobody can make another wait for more:
//   listener to connector   Greeting
//   connector to listener   Proof, with Mac("connector", job, both nonces, its job's name)
//   listener to connector   Answer, with Mac("listener", job, both nonces, its job's name)
// The key of the Link is Mac("link", job, both nonces, the job's name). A connector that knows the
// user's secret is told the name of another job. The protocol's number grows with each change of
// the greeting, or of the messages between launchers.

namespace lockstep::comm {

/// A job's name, as an engine has it, filled up with zeros.
using JobName = std::array<char, 64>;

/// Returns the text as a name: a long one is cut, and ends with its checksum.
[[nodiscard]] JobName job_name_of(const std::string& text);
[[nodiscard]] std::string text_of(const JobName& name);

using Protocol = std::array<char, 16>;
inline constexpr Protocol kProtocol{'l', 'o', 'c', 'k', 's', 't', 'e', 'p',
                                    ' ', 'l', 'i', 'n', 'k', ' ', '4', '\n'};
/// A random number of one connection.
using Nonce = std::array<std::byte, 32>;
[[nodiscard]] Nonce new_nonce();

struct Greeting {
  Protocol protocol = kProtocol;
  JobId job{};
  Nonce nonce{};
  LOCKSTEP_FIELDS(protocol, job, nonce)
};

struct Proof {
  Protocol protocol = kProtocol;
  Nonce nonce{};
  JobName name{};
  Mac mac{};
  LOCKSTEP_FIELDS(protocol, nonce, name, mac)
};

/// For a wrong secret the Mac is empty, and the name, too, unless the other end has said the same.
struct Answer {
  JobName name{};
  Mac mac{};
  LOCKSTEP_FIELDS(name, mac)
};

/// The facts that both ends know once they have greeted each other.
struct Greeted {
  JobId job;
  Nonce of_listener;
  Nonce of_connector;
};

/// Returns the Mac of a greeting. All labels have the same length.
[[nodiscard]] Mac greeting_mac(const Secret& secret, std::string_view label, const Greeted& greeted,
                               const JobName& name);
inline constexpr std::string_view kConnectorLabel = "connector";
inline constexpr std::string_view kListenerLabel = "listener ";
inline constexpr std::string_view kLinkLabel = "link     ";

}  // namespace lockstep::comm
