#include "framework/launch/host_links.h"

#include <algorithm>

#include "framework/base/text.h"

namespace lockstep::launcher {

using std::chrono::milliseconds;

std::string HostLinks::Peer::name() const {
  return str("host ", host, " (", link->peer(), ")");
}

void HostLinks::Peer::says_wrong(const DataError& error) {
  problem = str(" says what no launcher of this version says: ", error.what());
}

void HostLinks::progress() {
  for (const Peer& peer : peers_) peer.link->progress();
}

std::optional<HostLinks::Heard> HostLinks::receive() {
  for (Peer& peer : peers_) {
    while (peer.problem.empty()) {
      const auto bytes = peer.link->receive();
      if (!bytes && peer.link->is_open()) break;
      if (!bytes) {
        peer.problem = str(" is gone: ", peer.link->why_closed());
        break;
      }
      peer.silent = Waited();
      try {
        auto envelope = decode<Envelope>(*bytes, "a message");
        if (std::holds_alternative<Ready>(envelope.message)) peer.run = envelope.run;
        if (envelope.run != run_) continue;
        return std::optional<Heard>(std::in_place, &peer, std::move(envelope.message));
      } catch (const DataError& error) {
        peer.says_wrong(error);
      }
    }
  }
  return std::nullopt;
}

void HostLinks::send(std::size_t to, const HostMessage& message) {
  const auto peer = std::ranges::find(peers_, to, &Peer::host);
  if (peer != peers_.end()) peer->link->send(encode(Envelope{run_, message}));
}

void HostLinks::tell(const HostMessage& message, const Peer* but) {
  const std::string bytes = encode(Envelope{run_, message});
  for (const Peer& peer : peers_) {
    if (&peer != but) peer.link->send(bytes);
  }
}

void HostLinks::flush() {
  const auto deadline = Clock::now() + milliseconds(500);
  for (;;) {
    PollSet polled;
    for (const Peer& peer : peers_) {
      peer.link->progress();
      pollfd waits = peer.link->polled();
      if ((waits.events & POLLOUT) != 0) polled.add({waits.fd, POLLOUT, 0});
    }
    const auto rest = std::chrono::ceil<milliseconds>(deadline - Clock::now());
    if (polled.is_empty() || rest.count() <= 0) return;
    polled.wait(rest);
  }
}

}  // namespace lockstep::launcher
