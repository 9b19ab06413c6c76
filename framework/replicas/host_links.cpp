#include "framework/replicas/host_links.h"

#include "framework/base/text.h"

namespace lockstep::replicas {

using std::chrono::milliseconds;

namespace {

constexpr milliseconds kFlush{500};

}  // namespace

std::string HostLinks::Peer::name() const {
  return str("host ", host, " (", link->peer(), ")");
}

void HostLinks::Peer::says_wrong(const DataError& error) {
  problem = str(" says what no launcher of this version says: ", error.what());
}

void HostLinks::add_to(PollSet& polled) const {
  for (const Peer& peer : peers_) polled.add(peer.link->polled());
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
      peer.heard = Clock::now();
      try {
        auto envelope = decode<Envelope>(*bytes, "a message");
        if (own_ == 0) {
          envelope.from = peer.host;
          if (envelope.to != 0) pass_on(envelope);
        }
        if (envelope.to != own_ && envelope.to != kEveryone) continue;
        if (std::holds_alternative<Ready>(envelope.message)) peer.run = envelope.run;
        if (envelope.run != run_) continue;
        return Heard{&peer, envelope.from, std::move(envelope.message)};
      } catch (const DataError& error) {
        peer.says_wrong(error);
      }
    }
  }
  return std::nullopt;
}

void HostLinks::send(std::size_t to, const HostMessage& message) {
  pass_on({run_, own_, to, message});
}

void HostLinks::pass_on(const Envelope& envelope) {
  const std::string bytes = encode(envelope);
  for (const Peer& peer : peers_) {
    const bool is_others = envelope.to == kEveryone && peer.host != envelope.from;
    if (own_ != 0 || is_others || envelope.to == peer.host) peer.link->send(bytes);
  }
}

void HostLinks::flush() {
  const auto deadline = Clock::now() + kFlush;
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

}  // namespace lockstep::replicas
