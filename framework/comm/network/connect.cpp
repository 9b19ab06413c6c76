#include "framework/comm/network/connect.h"

#include <algorithm>
#include <cerrno>
#include <set>
#include <string_view>
#include <thread>
#include <utility>

#include <poll.h>
#include <sys/socket.h>

#include "framework/base/limits.h"
#include "framework/base/poll_set.h"
#include "framework/base/socket.h"
#include "framework/base/text.h"
#include "framework/comm/network/greeting.h"

namespace lockstep::comm {
namespace {

using Clock = std::chrono::steady_clock;
using std::chrono::milliseconds;

constexpr milliseconds kPauseBetweenTries{50};
constexpr milliseconds kPauseAfterLookups{500};  // in vain: name servers serve others, too
constexpr milliseconds kLongestTry{2000};        // at one of several places
// At the only place a try ends, too: nothing else tells that its name has got another address.
constexpr milliseconds kLongestTryAtOne{10'000};
constexpr milliseconds kOtherSecret{3000};  // a launcher that is about to end has ended by then

// Waits for `events`. Returns false once the deadline is over.
bool wait_until(Clock::time_point deadline, int descriptor, short events) {
  return wait_for({descriptor, events, 0},
                  std::chrono::ceil<milliseconds>(deadline - Clock::now()));
}

// Returns an errno, or 0; ETIMEDOUT once the deadline is over.
int connect_one(int descriptor, const addrinfo& to, Clock::time_point deadline) {
  if (::connect(descriptor, to.ai_addr, to.ai_addrlen) == 0) return 0;
  if (errno != EINPROGRESS) return errno;
  if (!wait_until(deadline, descriptor, POLLOUT)) return ETIMEDOUT;
  int error = 0;
  socklen_t size = sizeof error;
  return ::getsockopt(descriptor, SOL_SOCKET, SO_ERROR, &error, &size) == 0 ? error : errno;
}

// Receives a record of fixed size; returns why a part, left as it was, is missing, or nullptr.
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

// Tries to connect to Listeners at places.
class Connector {
 public:
  Connector(const Secret& secret, const std::optional<JobId>& job, const JobName& name)
      : secret_(secret), job_(job), name_(name) {}

  // Returns nullptr, and missing() has the reason, if another try may be worth it. Throws CommError
  // if somebody else listens there.
  [[nodiscard]] std::unique_ptr<Link> try_at(const HostAndPort& to, Clock::time_point deadline) {
    std::unique_ptr<Link> link;
    const auto [addresses, unknown] = addresses_of(to, 0);
    unknown_ = unknown;
    if (unknown != 0) missing_ = str(to.host, ": ", text_of_lookup(unknown));
    for (const addrinfo* each = addresses.get(); each != nullptr && !link; each = each->ai_next) {
      Descriptor socket(::socket(each->ai_family, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0));
      // An address that is silent leaves time for the others.
      const auto now = Clock::now();
      const auto until = each->ai_next == nullptr ? deadline : now + (deadline - now) / 2;
      // If there is no socket, the host knows no addresses of this family.
      if (const int error = socket.open() ? connect_one(socket.get(), *each, until) : errno) {
        missing_ = text_of_errno(error);
        if (error == ECONNREFUSED && job_) {
          throw ReplicaLost(str("nobody listens at ", to.text(), " any more"));
        }
        continue;
      }
      link = greet(to, std::move(socket), deadline);
    }
    return link;
  }

  // Returns why the last try failed.
  [[nodiscard]] const std::string& missing() const noexcept { return missing_; }
  // Returns getaddrinfo()'s error for the name, or 0.
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
  auto end = search.begin + search.timeout;
  const milliseconds longest = places.size() == 1 ? kLongestTryAtOne : kLongestTry;
  Connector connector(secret, std::nullopt, job_name_of(search.job_name));
  std::vector<std::string> refusals(places.size());  // by place, where somebody else listens
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
      // A refusal says more than a place where nobody listens.
      const auto refused = std::ranges::find_if_not(refusals, &std::string::empty);
      if (refused != refusals.end()) missing = *refused;
      if (search.tell) search.tell(missing);
    }
    const auto now = Clock::now();
    refuses_at =
        other_secret.empty() ? Clock::time_point::max() : std::min(refuses_at, now + kOtherSecret);
    if (now >= refuses_at) throw OtherSecret(other_secret);
    // Tries get rarer: many hosts may look for one.
    const auto waited = std::chrono::ceil<milliseconds>(Clock::now() - search.begin);
    const auto pause = unknown_hosts.empty()
                           ? std::clamp(waited / 20, kPauseBetweenTries, kPauseAfterLookups)
                           : kPauseAfterLookups;
    const auto wakes = std::min(end, Clock::now() + pause);
    std::this_thread::sleep_until(wakes);
    end += Clock::now() - wakes;  // the time that the process was paused
  }
}

}  // namespace lockstep::comm
