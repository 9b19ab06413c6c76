#include "framework/comm/network/listener.h"

#include <algorithm>
#include <array>
#include <cerrno>
#include <map>
#include <string_view>
#include <utility>

#include <arpa/inet.h>
#include <netdb.h>
#include <netinet/in.h>
#include <sys/socket.h>

#include "framework/base/limits.h"
#include "framework/base/socket.h"
#include "framework/base/text.h"

namespace lockstep::comm {
namespace {

using Clock = std::chrono::steady_clock;
using std::chrono::milliseconds;

constexpr milliseconds kRest{100};

// True when this host looks up what `host` stands for: no address, and no name of the loopback.
bool is_looked_up(const std::string& host) {
  in_addr ipv4{};
  return !is_loopback(host) && host.find(':') == std::string::npos &&
         ::inet_pton(AF_INET, host.c_str(), &ipv4) != 1;
}

// Listens at an address; if that fails, sets `error`.
Descriptor listening_at(const addrinfo& at, int& error) {
  Descriptor socket(::socket(at.ai_family, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0));
  const int on = 1;
  const int off = 0;
  if (at.ai_family == AF_INET6) {  // "::" takes the addresses of IPv4, too
    ::setsockopt(socket.get(), IPPROTO_IPV6, IPV6_V6ONLY, &off, sizeof off);
  }
  const bool listens = socket.open() &&
                       ::setsockopt(socket.get(), SOL_SOCKET, SO_REUSEADDR, &on, sizeof on) == 0 &&
                       ::bind(socket.get(), at.ai_addr, at.ai_addrlen) == 0 &&
                       ::listen(socket.get(), SOMAXCONN) == 0;
  if (listens) return socket;
  error = errno;
  return Descriptor();
}

}  // namespace

// A connection that has not proved the secret.
struct Listener::Stranger {
  Descriptor socket;
  std::string address;
  std::string peer;
  Clock::time_point deadline;
  Nonce nonce = new_nonce();
  std::string proof = {};
};

Listener::Listener(const HostAndPort& at, const Secret& secret, const JobId& job, Limits limits,
                   const std::string& job_name)
    : secret_(secret), job_(job), limits_(limits), name_(job_name_of(job_name)) {
  listen(at);
  sockaddr_storage address{};
  socklen_t length = sizeof address;
  require_done<CommError>(
      ::getsockname(socket_.get(), reinterpret_cast<sockaddr*>(&address), &length) == 0,
      "no own address");
  port_ = ntohs(address.ss_family == AF_INET6 ? reinterpret_cast<sockaddr_in6&>(address).sin6_port
                                              : reinterpret_cast<sockaddr_in&>(address).sin_port);
}

void Listener::listen(const HostAndPort& at) {
  const std::string failed = str("cannot listen on ", at.text(), ": ");
  const auto [addresses, unknown] = addresses_of(at, AI_PASSIVE);
  require<NameUnknown>(unknown == 0, failed, text_of_lookup(unknown));
  const bool by_name = is_looked_up(at.host);
  int error = EADDRNOTAVAIL;
  std::vector<std::string> tried;
  for (const addrinfo* each = addresses.get(); each != nullptr; each = each->ai_next) {
    tried.push_back(address_text(*each->ai_addr, each->ai_addrlen, /*with_port=*/false));
    if (by_name && is_loopback(tried.back())) continue;
    socket_ = listening_at(*each, error);
    if (socket_.open() || !by_name || error == EADDRINUSE) break;
  }
  if (!socket_.open() && by_name && error != EADDRINUSE) {
    for (const char* const all : {"::", "0.0.0.0"}) {
      const auto [any, wrong] = addresses_of({all, at.port}, AI_PASSIVE);
      if (wrong == 0) socket_ = listening_at(*any, error);
      if (socket_.open() || error == EADDRINUSE) break;
    }
    why_all_ = str(at.host, " is ", join(tried, " and "), " here, which is no address of this ",
                   "host in a network: it listens on all that it has, and the secret keeps ",
                   "strangers out. For one alone, give ", at.host, " in /etc/hosts the address ",
                   "that others have for it, or set --rendezvous ADDRESS:PORT ",
                   "(LOCKSTEP_RENDEZVOUS) on all hosts");
  }
  if (socket_.open()) return;
  if (error == EADDRINUSE) throw AddressInUse(failed + text_of_errno(error));
  throw CommError(str(failed, text_of_errno(error),
                      error == EADDRNOTAVAIL ? ": set --rendezvous (LOCKSTEP_RENDEZVOUS) to an "
                                               "address of the host that is host 0"
                                             : ""));
}

Listener::~Listener() = default;

void Listener::add_to(PollSet& polled, const PollSet::Handler& handler) const {
  if (!rests_until_) polled.add(socket_.get(), handler);
  for (const Stranger& stranger : strangers_) polled.add(stranger.socket.get(), handler);
}

milliseconds Listener::when() const {
  auto next = rests_until_.value_or(Clock::time_point::max());
  if (!strangers_.empty()) next = std::min(next, strangers_.front().deadline);
  if (next == Clock::time_point::max()) return milliseconds::max();
  return std::max(milliseconds(0), std::chrono::ceil<milliseconds>(next - Clock::now()));
}

std::vector<std::unique_ptr<Link>> Listener::progress() {
  if (rests_until_ && Clock::now() >= *rests_until_) rests_until_.reset();
  if (!rests_until_) accept_all();
  std::vector<std::unique_ptr<Link>> proved;
  std::erase_if(strangers_, [&](Stranger& stranger) { return examine(stranger, proved); });
  return proved;
}

void Listener::accept_all() {
  // The number is limited, so that a flood does not hold up the rest of the loop.
  for (std::size_t i = 0; i < limits_.most_unproved; ++i) {
    sockaddr_storage address{};
    socklen_t length = sizeof address;
    auto& from = reinterpret_cast<sockaddr&>(address);
    const int accepted = ::accept4(socket_.get(), &from, &length, SOCK_CLOEXEC | SOCK_NONBLOCK);
    if (accepted < 0) {
      const bool lacks = errno == EMFILE || errno == ENFILE || errno == ENOBUFS || errno == ENOMEM;
      if (lacks) rests_until_ = Clock::now() + kRest;
      if (lacks || errno == EAGAIN) return;
      continue;  // it has gone already
    }
    Descriptor socket(accepted);
    if (strangers_.size() >= limits_.most_unproved) make_room();
    Stranger& stranger =
        strangers_.emplace_back(Stranger{.socket = std::move(socket),
                                         .address = address_text(from, length, /*with_port=*/false),
                                         .peer = address_text(from, length, /*with_port=*/true),
                                         .deadline = Clock::now() + limits_.patience});
    // A fresh connection takes a greeting at once; if not, the other end hears nothing and goes.
    send_message(stranger.socket.get(), encode(Greeting{.job = job_, .nonce = stranger.nonce}));
  }
}

void Listener::make_room() {
  std::map<std::string_view, std::size_t> count;
  for (const Stranger& stranger : strangers_) ++count[stranger.address];
  const auto most =
      std::ranges::max_element(count, {}, [](const auto& each) { return each.second; });
  strangers_.erase(std::ranges::find(strangers_, most->first, &Stranger::address));
}

bool Listener::examine(Stranger& stranger, std::vector<std::unique_ptr<Link>>& proved) {
  const int socket = stranger.socket.get();
  static const std::size_t kBytes = encode(Proof{}).size();
  while (stranger.proof.size() < kBytes) {
    std::array<char, 128> buffer{};
    const ssize_t count =
        ::recv(socket, buffer.data(), std::min(buffer.size(), kBytes - stranger.proof.size()), 0);
    if (count < 0 && errno == EINTR) continue;
    if (count < 0 && errno == EAGAIN) return Clock::now() >= stranger.deadline;
    if (count <= 0) return true;
    stranger.proof.append(buffer.data(), static_cast<std::size_t>(count));
  }
  const auto proof = decode<Proof>(stranger.proof, "a proof");
  if (proof.protocol != kProtocol) return true;
  const Greeted greeted{job_, stranger.nonce, proof.nonce};
  const bool is_right =
      is_same(proof.mac, greeting_mac(secret_, kConnectorLabel, greeted, proof.name));
  const bool is_of_job = proof.name == name_;
  Answer answer;
  if (is_right || is_of_job) answer.name = name_;
  if (is_right) answer.mac = greeting_mac(secret_, kListenerLabel, greeted, name_);
  send_message(socket, encode(answer));
  if (is_of_job && !is_right) other_secret_ = stranger.address;
  if (!is_of_job || !is_right) return true;
  const Secret key(greeting_mac(secret_, kLinkLabel, greeted, name_));
  proved.emplace_back(
      new Link(std::move(stranger.socket), stranger.peer, job_, key, Link::End::listener));
  return true;
}

}  // namespace lockstep::comm
