#pragma once

#include <array>
#include <cstddef>
#include <string>
#include <string_view>

#include "framework/base/record.h"
#include "framework/comm/network/link.h"
#include "framework/comm/network/secret.h"

// The greeting, by which two processes prove each other that they know the secret of a job. After
// it there is a Link. All sizes are fixed, so that nobody can make another wait for more:
//   listener to connector   Greeting
//   connector to listener   Proof, with Mac("connector", job, both nonces, its job's name)
//   listener to connector   Answer, with Mac("listener", job, both nonces, its job's name)
// The key of what follows is Mac("link", job, both nonces, the job's name). Who knows the user's
// secret is told the name of another job. The protocol's number grows with each change of this, or
// of what launchers tell each other.

namespace lockstep::comm {

/// What an engine calls it, filled up with zeros.
using JobName = std::array<char, 64>;

/// Long names differ in their checksums.
[[nodiscard]] JobName job_name_of(const std::string& text);
[[nodiscard]] std::string text_of(const JobName& name);

using Protocol = std::array<char, 16>;
inline constexpr Protocol kProtocol{'l', 'o', 'c', 'k', 's', 't', 'e', 'p',
                                    ' ', 'l', 'i', 'n', 'k', ' ', '4', '\n'};
/// Random, and of one connection.
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

/// To a wrong secret one without a Mac, and with a name only where the other end has said the same.
struct Answer {
  JobName name{};
  Mac mac{};
  LOCKSTEP_FIELDS(name, mac)
};

/// What both ends know once they have greeted each other.
struct Greeted {
  JobId job;
  Nonce of_listener;
  Nonce of_connector;
};

/// All labels have the same length.
[[nodiscard]] Mac greeting_mac(const Secret& secret, std::string_view label, const Greeted& greeted,
                               const JobName& name);
inline constexpr std::string_view kConnectorLabel = "connector";
inline constexpr std::string_view kListenerLabel = "listener ";
inline constexpr std::string_view kLinkLabel = "link     ";

}  // namespace lockstep::comm
