#include "framework/comm/network/link.h"

#include <algorithm>
#include <cerrno>
#include <map>
#include <set>
#include <span>
#include <thread>
#include <utility>

#include <netdb.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <sys/socket.h>
#include <unistd.h>

#include "framework/base/errors.h"
#include "framework/base/limits.h"
#include "framework/base/number_text.h"
#include "framework/base/text.h"
#include "framework/comm/store.h"

namespace lockstep::comm {
namespace {

using Clock = std::chrono::steady_clock;
using std::chrono::milliseconds;

// The greeting, in this order; all sizes are fixed, so that nobody can make another wait for more:
//   listener to connector   Greeting
//   connector to listener   Proof, with Mac("connector", job, both nonces)
//   listener to connector   Answer, with Mac("listener", job, both nonces)
// The key of what follows is Mac("link", job, both nonces). The protocol's number grows with each
// change of this, or of what launchers tell each other.
using Protocol = std::array<char, 16>;
constexpr Protocol kProtocol{'l', 'o', 'c', 'k', 's', 't', 'e', 'p',
                             ' ', 'l', 'i', 'n', 'k', ' ', '2', '\n'};
using Nonce = std::array<std::byte, 32>;

struct Greeting {
  Protocol protocol = kProtocol;
  JobId job{};
  Nonce nonce{};
  LOCKSTEP_FIELDS(protocol, job, nonce)
};
struct Proof {
  Protocol protocol = kProtocol;
  Nonce nonce{};
  Mac mac{};
  LOCKSTEP_FIELDS(protocol, nonce, mac)
};
struct Answer {
  static constexpr std::uint8_t kWelcome = 1;
  static constexpr std::uint8_t kWrongSecret = 2;
  std::uint8_t answer = kWrongSecret;
  Mac mac{};
  LOCKSTEP_FIELDS(answer, mac)
};

// A message: its length in 4 bytes, the text, its Mac.
constexpr std::size_t kLengthBytes = 4;

constexpr milliseconds kPauseBetweenTries{50};
constexpr milliseconds kPauseAfterLookups{500};  // in vain: whom all hosts ask serves others too
constexpr milliseconds kLongestTry{2000};        // at one of several places
constexpr milliseconds kRest{100};

Nonce new_nonce() {
  Nonce nonce{};
  fill_randomly(nonce);
  return nonce;
}

ConstBytes bytes_of(std::string_view text) {
  return std::as_bytes(std::span(text));
}

// What both ends know once they have greeted each other.
struct Greeted {
  JobId job;
  Nonce of_listener;
  Nonce of_connector;
};

// All labels have the same length.
Mac greeting_mac(const Secret& secret, std::string_view label, const Greeted& greeted) {
  return secret.mac({bytes_of(label), greeted.job, greeted.of_listener, greeted.of_connector});
}
constexpr std::string_view kConnectorLabel = "connector";
constexpr std::string_view kListenerLabel = "listener ";
constexpr std::string_view kLinkLabel = "link     ";

// Small messages do not wait for more.
void send_at_once(int descriptor) {
  const int on = 1;
  ::setsockopt(descriptor, IPPROTO_TCP, TCP_NODELAY, &on, sizeof on);
}

std::string address_text(const sockaddr_storage& address, socklen_t length, bool with_port) {
  std::array<char, NI_MAXHOST> host{};
  std::array<char, NI_MAXSERV> port{};
  if (::getnameinfo(reinterpret_cast<const sockaddr*>(&address), length, host.data(), host.size(),
                    port.data(), port.size(), NI_NUMERICHOST | NI_NUMERICSERV) != 0) {
    return "an unknown address";
  }
  if (!with_port) return host.data();
  return HostAndPort{host.data(), static_cast<std::uint16_t>(std::stoi(port.data()))}.text();
}

bool is_loopback(const std::string& host) {
  return host.starts_with("127.") || host == "::1" || host.find("localhost") != std::string::npos;
}

struct FreeAddresses {
  void operator()(addrinfo* first) const { ::freeaddrinfo(first); }
};
using Addresses = std::unique_ptr<addrinfo, FreeAddresses>;

// The addresses of a host, and getaddrinfo()'s error.
std::pair<Addresses, int> addresses_of(const HostAndPort& at, int flags) {
  addrinfo hints{};
  hints.ai_family = AF_UNSPEC;
  hints.ai_socktype = SOCK_STREAM;
  hints.ai_flags = flags | AI_NUMERICSERV;
  addrinfo* first = nullptr;
  const int error = ::getaddrinfo(at.host.c_str(), std::to_string(at.port).c_str(), &hints, &first);
  return {Addresses(first), error};
}

// False once the deadline is over.
bool wait_until(Clock::time_point deadline, int descriptor, short events) {
  return wait_for({descriptor, events, 0},
                  std::chrono::ceil<milliseconds>(deadline - Clock::now()));
}

// An errno, or 0; ETIMEDOUT once the deadline is over.
int connect_one(int descriptor, const addrinfo& to, Clock::time_point deadline) {
  if (::connect(descriptor, to.ai_addr, to.ai_addrlen) == 0) return 0;
  if (errno != EINPROGRESS) return errno;
  if (!wait_until(deadline, descriptor, POLLOUT)) return ETIMEDOUT;
  int error = 0;
  socklen_t size = sizeof error;
  return ::getsockopt(descriptor, SOL_SOCKET, SO_ERROR, &error, &size) == 0 ? error : errno;
}

// Receives a record of fixed size; returns why not all has come, or nullptr. The rest is as it was.
template <typename Record>
const char* receive_all(int descriptor, Record& record, Clock::time_point deadline) {
  std::string bytes = encode(record);
  std::size_t have = 0;
  const char* missing = nullptr;
  while (have < bytes.size() && missing == nullptr) {
    const ssize_t count = ::recv(descriptor, bytes.data() + have, bytes.size() - have, 0);
    if (count > 0) {
      have += static_cast<std::size_t>(count);
    } else if (count < 0 && errno == EAGAIN) {
      if (!wait_until(deadline, descriptor, POLLIN)) missing = "it does not greet";
    } else if (count == 0 || errno != EINTR) {
      missing = "it closes the connection";
    }
  }
  record = decode<Record>(bytes, "a greeting");
  return missing;
}

}  // namespace

JobId new_job_id() {
  JobId id{};
  fill_randomly(id);
  return id;
}

HostAndPort HostAndPort::parse(std::string_view text) {
  const auto refuse = [&] {
    throw ValueError(
        str("'", cut(std::string(text)), "' is no HOST:PORT, such as node0:29500 or [::1]:29500"));
  };
  const std::size_t colon = text.rfind(':');
  if (colon == std::string_view::npos) refuse();
  std::string_view host = text.substr(0, colon);
  const auto port = parse_number<std::uint16_t>(text.substr(colon + 1));
  const bool is_bracketed = host.starts_with('[') && host.ends_with(']');
  if (is_bracketed) host = host.substr(1, host.size() - 2);
  const bool is_host = is_bracketed || host.find(':') == std::string_view::npos;
  if (host.empty() || !is_host || !port) refuse();
  return {std::string(host), *port};
}

std::string HostAndPort::text() const {
  const bool is_bracketed = host.find(':') != std::string::npos;
  return is_bracketed ? str("[", host, "]:", port) : str(host, ":", port);
}

void keep_alive(int socket, std::int64_t probes) noexcept {
  const int on = 1;
  const auto most = static_cast<int>(std::clamp<std::int64_t>(probes, 1, 120));
  ::setsockopt(socket, SOL_SOCKET, SO_KEEPALIVE, &on, sizeof on);
  ::setsockopt(socket, IPPROTO_TCP, TCP_KEEPIDLE, &on, sizeof on);
  ::setsockopt(socket, IPPROTO_TCP, TCP_KEEPINTVL, &on, sizeof on);
  ::setsockopt(socket, IPPROTO_TCP, TCP_KEEPCNT, &most, sizeof most);
}

Link::Link(Descriptor socket, std::string peer, const JobId& job, const Secret& key, End own)
    : socket_(std::move(socket)), peer_(std::move(peer)), job_(job), key_(key), own_(own) {}

pollfd Link::polled() const noexcept {
  const bool sends = out_begin_ < out_.size();
  return {socket_.get(), static_cast<short>(sends ? POLLIN | POLLOUT : POLLIN), 0};
}

void Link::limit_silence(milliseconds limit) noexcept {
  const auto unanswered = static_cast<unsigned>(limit.count());
  keep_alive(socket_.get(), limit.count() / 1000 - 1);
  ::setsockopt(socket_.get(), IPPROTO_TCP, TCP_USER_TIMEOUT, &unanswered, sizeof unanswered);
}

std::string Link::own_address() const {
  sockaddr_storage address{};
  socklen_t length = sizeof address;
  require_done<CommError>(
      ::getsockname(socket_.get(), reinterpret_cast<sockaddr*>(&address), &length) == 0,
      "no own address");
  return address_text(address, length, /*with_port=*/false);
}

void Link::close(std::string why) noexcept {
  if (!is_open()) return;
  socket_.close();
  why_closed_ = std::move(why);
}

Mac Link::mac_of(End sender, std::uint64_t number, std::string_view message) const {
  return key_.mac({std::as_bytes(std::span(&sender, 1)), std::as_bytes(std::span(&number, 1)),
                   bytes_of(message)});
}

void Link::send(std::string_view message) {
  require(message.size() <= kLongestMessage, "link: a message of ", message.size(),
          " bytes, and the longest has ", kLongestMessage);
  if (!is_open()) return;
  if (out_.size() - out_begin_ + message.size() > kMostQueued) {
    return close("the other end does not read");
  }
  put_number(out_, message.size(), kLengthBytes);
  out_ += message;
  put(out_, mac_of(own_, sent_++, message));
}

void Link::progress() {
  send_queued();
  receive_more();
}

void Link::send_queued() {
  while (is_open() && out_begin_ < out_.size()) {
    const ssize_t count =
        ::send(socket_.get(), out_.data() + out_begin_, out_.size() - out_begin_, MSG_NOSIGNAL);
    if (count >= 0) {
      out_begin_ += static_cast<std::size_t>(count);
    } else if (errno == EAGAIN) {
      break;
    } else if (errno != EINTR) {
      const std::string why = text_of_errno(errno);
      receive_more();  // the other end's last message may say why it left
      socket_.close();
      why_closed_ = why;  // receiving has found no more than an end
    }
  }
  out_.erase(0, std::exchange(out_begin_, 0));
}

void Link::receive_more() {
  std::array<char, 65536> buffer{};
  // A fast sender does not hold up the rest of the loop.
  constexpr int kMostReads = 16;
  for (int reads = 0; is_open() && reads < kMostReads; ++reads) {
    const ssize_t count = ::recv(socket_.get(), buffer.data(), buffer.size(), 0);
    if (count > 0) {
      in_.append(buffer.data(), static_cast<std::size_t>(count));
      take_messages();
    } else if (count == 0) {
      close("the other end has closed it");
    } else if (errno == EAGAIN) {
      return;
    } else if (errno != EINTR) {
      close(text_of_errno(errno));
    }
  }
}

void Link::take_messages() {
  std::string_view rest = in_;
  while (rest.size() >= kLengthBytes) {
    const std::size_t length = number_at(rest, kLengthBytes);
    if (length > kLongestMessage) return close("a message was damaged on the way");
    if (rest.size() < kLengthBytes + length + sizeof(Mac)) break;
    const std::string_view message = rest.substr(kLengthBytes, length);
    const auto mac = decode<Mac>(rest.substr(kLengthBytes + length, sizeof(Mac)), "a Mac");
    const End other = own_ == End::listener ? End::connector : End::listener;
    if (!is_same(mac, mac_of(other, received_++, message))) {
      return close("a message was damaged on the way");
    }
    messages_.emplace_back(message);
    rest.remove_prefix(kLengthBytes + length + sizeof(Mac));
  }
  in_.erase(0, in_.size() - rest.size());
}

std::optional<std::string> Link::receive() {
  if (messages_.empty()) return std::nullopt;
  std::string message = std::move(messages_.front());
  messages_.pop_front();
  return message;
}

Descriptor Link::release() {
  send_queued();
  if (out_begin_ < out_.size() || !in_.empty() || !messages_.empty()) {
    close("it was to be released in the middle of messages");
  }
  if (is_open()) why_closed_ = "it was released";
  return Descriptor(socket_.release());
}

std::unique_ptr<Link> connect(const std::vector<HostAndPort>& places, const Secret& secret,
                              milliseconds timeout, const std::optional<JobId>& job) {
  const auto end = Clock::now() + timeout;
  std::string last = "nobody answers";
  std::string refusal;                       // of one of several places
  std::set<std::string_view> unknown_hosts;  // of this round
  // One try at a place: nullptr, and `last` says why, if it may be worth another.
  const auto try_at = [&](const HostAndPort& to, Clock::time_point deadline) {
    std::unique_ptr<Link> link;
    const auto [addresses, unknown] = addresses_of(to, 0);
    if (unknown != 0) unknown_hosts.insert(to.host);
    require<CommError>(unknown == 0 || unknown == EAI_AGAIN, to.host, ": ",
                       ::gai_strerror(unknown));
    if (unknown != 0) last = ::gai_strerror(unknown);
    for (const addrinfo* each = addresses.get(); each != nullptr && !link; each = each->ai_next) {
      Descriptor socket(::socket(each->ai_family, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0));
      require_done<CommError>(socket.open(), "cannot make a socket");
      if (const int error = connect_one(socket.get(), *each, deadline)) {
        last = text_of_errno(error);
        if (error == ECONNREFUSED && job) {
          throw ReplicaLost(str("nobody listens at ", to.text(), " any more"));
        }
        continue;
      }
      send_at_once(socket.get());
      Greeting greeting;
      const char* const missing = receive_all(socket.get(), greeting, deadline);
      require<CommError>(greeting.protocol == kProtocol, to.text(),
                         " is no Lockstep launcher of this version");
      if (missing != nullptr) {  // it may be ending, or overrun by strangers: try again
        last = missing;
        continue;
      }
      const Greeted greeted{greeting.job, greeting.nonce, new_nonce()};
      if (job && greeted.job != *job) throw CommError(str(to.text(), " is of another job"));
      const Proof proof{.nonce = greeted.of_connector,
                        .mac = greeting_mac(secret, kConnectorLabel, greeted)};
      Answer answer;
      if (!send_message(socket.get(), encode(proof)) ||
          receive_all(socket.get(), answer, deadline) != nullptr) {
        last = "it does not answer";
        continue;
      }
      require<CommError>(answer.answer == Answer::kWelcome &&
                             is_same(answer.mac, greeting_mac(secret, kListenerLabel, greeted)),
                         to.text(), " has another secret");
      const Secret key(greeting_mac(secret, kLinkLabel, greeted));
      link.reset(new Link(std::move(socket), to.text(), greeted.job, key, Link::End::connector));
    }
    return link;
  };
  for (;;) {
    unknown_hosts.clear();
    for (const HostAndPort& to : places) {
      if (Clock::now() >= end) {
        throw Timeout(str("no connection to ", join(mapped(places, &HostAndPort::text), " or "),
                          " within ", timeout.count(), " ms: ", refusal.empty() ? last : refusal));
      }
      if (unknown_hosts.contains(to.host)) continue;
      try {
        // Who else listens at one of several may say nothing.
        const auto deadline = places.size() == 1 ? end : std::min(end, Clock::now() + kLongestTry);
        if (auto link = try_at(to, deadline)) return link;
      } catch (const CommError& error) {
        if (places.size() == 1) throw;
        refusal = error.what();
      }
    }
    const auto pause = unknown_hosts.empty() ? kPauseBetweenTries : kPauseAfterLookups;
    std::this_thread::sleep_until(std::min(end, Clock::now() + pause));
  }
}

// A connection that has not proved the secret.
struct Listener::Stranger {
  Descriptor socket;
  std::string address;
  std::string peer;
  Clock::time_point deadline;
  Nonce nonce = new_nonce();
  std::string proof = {};
};

Listener::Listener(const HostAndPort& at, const Secret& secret, const JobId& job, Limits limits)
    : secret_(secret), job_(job), limits_(limits) {
  const std::string failed = str("cannot listen on ", at.text(), ": ");
  const auto [addresses, unknown] = addresses_of(at, AI_PASSIVE);
  require<CommError>(unknown == 0, failed, ::gai_strerror(unknown));
  const addrinfo& first = *addresses;
  Descriptor socket(::socket(first.ai_family, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0));
  const int on = 1;
  sockaddr_storage address{};
  socklen_t length = sizeof address;
  if (socket.get() < 0 ||
      ::setsockopt(socket.get(), SOL_SOCKET, SO_REUSEADDR, &on, sizeof on) != 0 ||
      ::bind(socket.get(), first.ai_addr, first.ai_addrlen) != 0 ||
      ::listen(socket.get(), SOMAXCONN) != 0 ||
      ::getsockname(socket.get(), reinterpret_cast<sockaddr*>(&address), &length) != 0) {
    const int error = errno;
    const std::string message = failed + text_of_errno(error);
    if (error == EADDRINUSE) throw AddressInUse(message);
    throw CommError(message);
  }
  port_ = ntohs(address.ss_family == AF_INET6 ? reinterpret_cast<sockaddr_in6&>(address).sin6_port
                                              : reinterpret_cast<sockaddr_in&>(address).sin_port);
  socket_ = std::move(socket);
  const std::string numeric = address_text(address, length, /*with_port=*/false);
  if (is_loopback(numeric) && !is_loopback(at.host)) {
    warning_ =
        str("on this host ", at.host, " is ", numeric, ", where no other host reaches it: in ",
            "/etc/hosts give it the address that others have for it, or set --rendezvous ",
            "ADDRESS:PORT (LOCKSTEP_RENDEZVOUS) on all hosts");
  }
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
  // So many at once, that a flood does not hold up the rest of the loop.
  for (std::size_t i = 0; i < limits_.most_unproved; ++i) {
    sockaddr_storage address{};
    socklen_t length = sizeof address;
    const int accepted = ::accept4(socket_.get(), reinterpret_cast<sockaddr*>(&address), &length,
                                   SOCK_CLOEXEC | SOCK_NONBLOCK);
    if (accepted < 0) {
      const bool lacks = errno == EMFILE || errno == ENFILE || errno == ENOBUFS || errno == ENOMEM;
      if (lacks) rests_until_ = Clock::now() + kRest;
      if (lacks || errno == EAGAIN) return;
      continue;  // it has gone already
    }
    Descriptor socket(accepted);
    if (strangers_.size() >= limits_.most_unproved) make_room();
    send_at_once(accepted);
    Stranger& stranger = strangers_.emplace_back(
        Stranger{.socket = std::move(socket),
                 .address = address_text(address, length, /*with_port=*/false),
                 .peer = address_text(address, length, /*with_port=*/true),
                 .deadline = Clock::now() + limits_.patience});
    // A fresh connection takes so much; where it does not, the other end hears nothing and goes.
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
  const bool is_right = is_same(proof.mac, greeting_mac(secret_, kConnectorLabel, greeted));
  Answer answer;
  if (is_right) answer = {Answer::kWelcome, greeting_mac(secret_, kListenerLabel, greeted)};
  send_message(socket, encode(answer));
  if (!is_right) return true;
  const Secret key(greeting_mac(secret_, kLinkLabel, greeted));
  proved.emplace_back(
      new Link(std::move(stranger.socket), stranger.peer, job_, key, Link::End::listener));
  return true;
}

}  // namespace lockstep::comm
