#include "framework/comm/network/link.h"

#include <algorithm>
#include <cerrno>
#include <map>
#include <set>
#include <span>
#include <thread>
#include <utility>

#include <arpa/inet.h>
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
#include "framework/storage/checksum.h"

namespace lockstep::comm {
namespace {

using Clock = std::chrono::steady_clock;
using std::chrono::milliseconds;

// The greeting, in this order; all sizes are fixed, so that nobody can make another wait for more:
//   listener to connector   Greeting
//   connector to listener   Proof, with Mac("connector", job, both nonces, its job's name)
//   listener to connector   Answer, with Mac("listener", job, both nonces, its job's name)
// The key of what follows is Mac("link", job, both nonces, the job's name). Who knows the user's
// secret is told the name of another job. The protocol's number grows with each change of this, or
// of what launchers tell each other.
using Protocol = std::array<char, 16>;
constexpr Protocol kProtocol{'l', 'o', 'c', 'k', 's', 't', 'e', 'p',
                             ' ', 'l', 'i', 'n', 'k', ' ', '4', '\n'};
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
  JobName name{};
  Mac mac{};
  LOCKSTEP_FIELDS(protocol, nonce, name, mac)
};
// To a wrong secret one without a Mac, and with a name only where the other end has said the same.
struct Answer {
  JobName name{};
  Mac mac{};
  LOCKSTEP_FIELDS(name, mac)
};

// A message: its length in 4 bytes, the text, its Mac.
constexpr std::size_t kLengthBytes = 4;

constexpr milliseconds kPauseBetweenTries{50};
constexpr milliseconds kPauseAfterLookups{500};  // in vain: whom all hosts ask serves others too
constexpr milliseconds kLongestTry{2000};        // at one of several places
// At the only one: where its name has got another address meanwhile, nothing else tells.
constexpr milliseconds kLongestTryAtOne{10'000};
constexpr milliseconds kOtherSecret{3000};  // a launcher that is about to go has gone
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
Mac greeting_mac(const Secret& secret, std::string_view label, const Greeted& greeted,
                 const JobName& name) {
  return secret.mac({bytes_of(label), greeted.job, greeted.of_listener, greeted.of_connector,
                     std::as_bytes(std::span(name))});
}
constexpr std::string_view kConnectorLabel = "connector";
constexpr std::string_view kListenerLabel = "listener ";
constexpr std::string_view kLinkLabel = "link     ";

// Long names differ in their checksums.
JobName job_name_of(const std::string& text) {
  JobName name{};
  std::string all = text;
  if (text.size() > name.size()) {
    storage::Checksum sum;
    sum.add(bytes_of(text));
    const std::string end = "… " + sum.text();
    all = std::string(beginning(text, name.size() - end.size())) + end;
  }
  std::ranges::copy(all, name.begin());
  return name;
}
std::string text_of(const JobName& name) {
  return {name.begin(), std::ranges::find(name, '\0')};
}

// Small messages do not wait for more.
void send_at_once(int descriptor) {
  const int on = 1;
  ::setsockopt(descriptor, IPPROTO_TCP, TCP_NODELAY, &on, sizeof on);
}

std::string address_text(const sockaddr& address, socklen_t length, bool with_port) {
  std::array<char, NI_MAXHOST> host{};
  std::array<char, NI_MAXSERV> port{};
  if (::getnameinfo(&address, length, host.data(), host.size(), port.data(), port.size(),
                    NI_NUMERICHOST | NI_NUMERICSERV) != 0) {
    return "an unknown address";
  }
  // Who listens on all addresses sees those of IPv4 as if they were of IPv6; others may have none.
  std::string_view numeric = host.data();
  constexpr std::string_view kMapped = "::ffff:";
  if (numeric.starts_with(kMapped) && numeric.find('.') != std::string_view::npos) {
    numeric.remove_prefix(kMapped.size());
  }
  if (!with_port) return std::string(numeric);
  return HostAndPort{std::string(numeric), static_cast<std::uint16_t>(std::stoi(port.data()))}
      .text();
}

// Which follows from what this host knows, not from what the user has written.
bool is_looked_up(const std::string& host) {
  in_addr ipv4{};
  return !is_loopback(host) && host.find(':') == std::string::npos &&
         ::inet_pton(AF_INET, host.c_str(), &ipv4) != 1;
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

// Listens at an address; otherwise `error` is why not.
Descriptor listening_at(const addrinfo& at, int& error) {
  Descriptor socket(::socket(at.ai_family, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0));
  const int on = 1;
  const int off = 0;
  if (at.ai_family == AF_INET6) {  // all addresses are those of IPv4, too
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

bool is_loopback(const std::string& host) {
  return host.starts_with("127.") || host == "::1" || host.find("localhost") != std::string::npos;
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
  return address_text(reinterpret_cast<sockaddr&>(address), length, /*with_port=*/false);
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

// Tries at places to reach who listens there.
class Connector {
 public:
  Connector(const Secret& secret, const std::optional<JobId>& job, const JobName& name)
      : secret_(secret), job_(job), name_(name) {}

  // Nothing, and missing() says why, if another try may be worth it. CommError for who else is
  // there.
  [[nodiscard]] std::unique_ptr<Link> try_at(const HostAndPort& to, Clock::time_point deadline) {
    std::unique_ptr<Link> link;
    const auto [addresses, unknown] = addresses_of(to, 0);
    unknown_ = unknown;
    if (unknown != 0) missing_ = str(to.host, ": ", ::gai_strerror(unknown));
    for (const addrinfo* each = addresses.get(); each != nullptr && !link; each = each->ai_next) {
      Descriptor socket(::socket(each->ai_family, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0));
      // An address that is silent leaves time for the others.
      const auto now = Clock::now();
      const auto until = each->ai_next == nullptr ? deadline : now + (deadline - now) / 2;
      // Where it can't be made, the host knows no addresses of this family.
      if (const int error = socket.open() ? connect_one(socket.get(), *each, until) : errno) {
        missing_ = text_of_errno(error);
        if (error == ECONNREFUSED && job_) {
          throw ReplicaLost(str("nobody listens at ", to.text(), " any more"));
        }
        continue;
      }
      send_at_once(socket.get());
      link = greet(to, std::move(socket), deadline);
    }
    return link;
  }

  // Of the last try.
  [[nodiscard]] const std::string& missing() const noexcept { return missing_; }
  // getaddrinfo()'s error of the name, or 0.
  [[nodiscard]] int unknown() const noexcept { return unknown_; }

 private:
  std::unique_ptr<Link> greet(const HostAndPort& to, Descriptor socket,
                              Clock::time_point deadline) {
    Greeting greeting;
    const char* const missing = receive_all(socket.get(), greeting, deadline);
    require<CommError>(greeting.protocol == kProtocol, to.text(),
                       " is no Lockstep launcher of this version");
    if (missing != nullptr) {  // it may be ending, or overrun by strangers: try again
      missing_ = missing;
      return nullptr;
    }
    const Greeted greeted{greeting.job, greeting.nonce, new_nonce()};
    if (job_ && greeted.job != *job_) throw CommError(str(to.text(), " is of another job"));
    const Proof proof{.nonce = greeted.of_connector,
                      .name = name_,
                      .mac = greeting_mac(secret_, kConnectorLabel, greeted, name_)};
    Answer answer;
    if (!send_message(socket.get(), encode(proof)) ||
        receive_all(socket.get(), answer, deadline) != nullptr) {
      missing_ = "it does not answer";
      return nullptr;
    }
    if (!is_same(answer.mac, greeting_mac(secret_, kListenerLabel, greeted, answer.name))) {
      const std::string text = to.text() + " has another secret";
      if (answer.name == name_) throw OtherSecret(text);
      throw CommError(text + ": the hosts need the same one");
    }
    require<CommError>(answer.name == name_, to.text(), " is of another job (",
                       answer.name == JobName{} ? "of no engine" : text_of(answer.name), ")");
    const Secret key(greeting_mac(secret_, kLinkLabel, greeted, name_));
    return std::unique_ptr<Link>(
        new Link(std::move(socket), to.text(), greeted.job, key, Link::End::connector));
  }

  const Secret& secret_;
  const std::optional<JobId> job_;
  const JobName name_;
  std::string missing_ = "nobody answers";
  int unknown_ = 0;
};

std::unique_ptr<Link> connect(const HostAndPort& to, const Secret& secret, milliseconds timeout,
                              const std::optional<JobId>& job) {
  const auto end = Clock::now() + timeout;
  Connector connector(secret, job, JobName{});
  while (Clock::now() < end) {
    if (auto link = connector.try_at(to, end)) return link;
    require<CommError>(connector.unknown() == 0 || connector.unknown() == EAI_AGAIN,
                       connector.missing());
    std::this_thread::sleep_until(std::min(end, Clock::now() + kPauseBetweenTries));
  }
  throw Timeout(str("no connection to ", to.text(), " within ", timeout.count(),
                    " ms: ", connector.missing()));
}

std::unique_ptr<Link> find_listener(const std::vector<HostAndPort>& places, const Secret& secret,
                                    const Search& search) {
  const auto begin = Clock::now();
  const auto end = begin + search.timeout;
  const milliseconds longest = places.size() == 1 ? kLongestTryAtOne : kLongestTry;
  Connector connector(secret, std::nullopt, job_name_of(search.job_name));
  std::vector<std::string> refusals(places.size());  // of those at whose place somebody else is
  std::string missing = "nobody answers";
  auto refuses_at = Clock::time_point::max();
  for (;;) {
    std::string other_secret;
    std::set<std::string_view> unknown_hosts;
    for (std::size_t i = 0; i < places.size(); ++i) {
      const HostAndPort& to = places[i];
      require<Timeout>(Clock::now() < end, "no connection to ",
                       join(mapped(places, &HostAndPort::text), " or "), " within ",
                       search.timeout.count(), " ms: ", missing);
      if (unknown_hosts.contains(to.host)) continue;
      refusals[i].clear();
      try {
        if (auto link = connector.try_at(to, std::min(end, Clock::now() + longest))) return link;
      } catch (const OtherSecret& error) {
        other_secret = refusals[i] = error.what();
      } catch (const CommError& error) {
        refusals[i] = error.what();
      }
      missing = connector.missing();
      if (connector.unknown() != 0) {
        unknown_hosts.insert(to.host);
        missing += search.unknown_name_hint;
      }
      // Who is there says more than who is not.
      const auto refused = std::ranges::find_if_not(refusals, &std::string::empty);
      if (refused != refusals.end()) missing = *refused;
      if (search.tell) search.tell(missing);
    }
    const auto now = Clock::now();
    refuses_at =
        other_secret.empty() ? Clock::time_point::max() : std::min(refuses_at, now + kOtherSecret);
    if (now >= refuses_at) throw OtherSecret(other_secret);
    // Seldom after a while: many hosts may look for one.
    const auto waited = std::chrono::ceil<milliseconds>(Clock::now() - begin);
    const auto pause = unknown_hosts.empty()
                           ? std::clamp(waited / 20, kPauseBetweenTries, kPauseAfterLookups)
                           : kPauseAfterLookups;
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
  require<NameUnknown>(unknown == 0, failed, ::gai_strerror(unknown));
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
  // So many at once, that a flood does not hold up the rest of the loop.
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
    send_at_once(accepted);
    Stranger& stranger =
        strangers_.emplace_back(Stranger{.socket = std::move(socket),
                                         .address = address_text(from, length, /*with_port=*/false),
                                         .peer = address_text(from, length, /*with_port=*/true),
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
