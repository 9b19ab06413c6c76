#include <algorithm>
#include <array>
#include <atomic>
#include <cstdint>
#include <functional>
#include <future>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include <arpa/inet.h>
#include <dlfcn.h>
#include <netdb.h>
#include <netinet/in.h>
#include <poll.h>
#include <sys/socket.h>
#include <unistd.h>

#include "framework/base/descriptor.h"
#include "framework/base/errors.h"
#include "framework/base/random.h"
#include "framework/base/text.h"
#include "framework/comm/network/connect.h"
#include "framework/comm/network/listener.h"
#include "tests/catch.h"
#include "tests/support/message_of.h"
#include "tests/support/settings.h"

using namespace lockstep;
using namespace std::chrono_literals;
using Catch::Matchers::EndsWith;
using Catch::Matchers::StartsWith;
using comm::HostAndPort;
using comm::JobId;
using comm::Link;
using comm::Listener;
using comm::Secret;
using testing::message_of;

namespace {

constexpr auto kPatience = 10s;
using Links = std::vector<std::unique_ptr<Link>>;

Secret secret(unsigned char first = 1) {
  return Secret({std::byte{first}});
}

HostAndPort loopback(std::uint16_t port = 0) {
  return {"127.0.0.1", port};
}

// Lets a listener and links work until `enough`. Returns false if that takes too long.
bool work(Listener* listener, Links& links, const std::function<bool()>& enough) {
  const auto deadline = std::chrono::steady_clock::now() + kPatience;
  while (!enough()) {
    if (std::chrono::steady_clock::now() > deadline) return false;
    PollSet polled;
    if (listener != nullptr) listener->add_to(polled);
    for (const auto& link : links) polled.add(link->polled());
    polled.wait(10ms);
    if (listener != nullptr) {
      for (auto& proved : listener->progress()) links.push_back(std::move(proved));
    }
    for (const auto& link : links) link->progress();
  }
  return true;
}

// Returns a link's two ends, the listener's first.
Links linked(Listener& listener, std::uint16_t port) {
  auto connected = std::async(std::launch::async,
                              [&] { return comm::connect(loopback(port), secret(), kPatience); });
  Links links;
  REQUIRE(work(&listener, links, [&] {
    return links.size() == 1 && connected.wait_for(0s) == std::future_status::ready;
  }));
  links.push_back(connected.get());
  return links;
}

// A plain server on a port that is free.
class Server {
 public:
  Server() {
    sockaddr_in at{};
    at.sin_family = AF_INET;
    at.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
    socklen_t length = sizeof at;
    if (::bind(socket_.get(), reinterpret_cast<sockaddr*>(&at), length) != 0 ||
        ::getsockname(socket_.get(), reinterpret_cast<sockaddr*>(&at), &length) != 0) {
      throw Error("there is no free port");
    }
    port_ = ntohs(at.sin_port);
  }

  [[nodiscard]] std::uint16_t port() const { return port_; }
  void listen() const { (void)::listen(socket_.get(), 8); }
  [[nodiscard]] Descriptor accept() const {
    return Descriptor(::accept(socket_.get(), nullptr, nullptr));
  }

 private:
  Descriptor socket_{::socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0)};
  std::uint16_t port_ = 0;
};

// Makes a plain connection.
Descriptor connected_to(std::uint16_t port) {
  Descriptor socket(::socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0));
  sockaddr_in to{};
  to.sin_family = AF_INET;
  to.sin_port = htons(port);
  to.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
  if (::connect(socket.get(), reinterpret_cast<sockaddr*>(&to), sizeof to) != 0) socket.close();
  return socket;
}

void send_text(const Descriptor& socket, const std::string& text) {
  (void)::send(socket.get(), text.data(), text.size(), MSG_NOSIGNAL);
}

// Returns the bytes that come, up to `size` of them or the end.
std::string received(const Descriptor& socket, std::size_t size) {
  std::string text;
  std::array<char, 4096> buffer{};
  while (text.size() < size) {
    const ssize_t count =
        ::recv(socket.get(), buffer.data(), std::min(buffer.size(), size - text.size()), 0);
    if (count <= 0) break;
    text.append(buffer.data(), static_cast<std::size_t>(count));
  }
  return text;
}

std::string random_text(Key key, std::size_t size) {
  std::string text(size, '\0');
  for (std::size_t i = 0; i < size; ++i) text[i] = static_cast<char>(key.fold(i).bits() & 0xff);
  return text;
}

constexpr std::size_t kGreetingBytes = 64;
constexpr std::size_t kProofBytes = 144;
constexpr std::size_t kAnswerBytes = 96;

std::atomic<int> lookups_in_vain = 0;

}  // namespace

// Takes the place of the C library's in this program: "debian.invalid" has the address that Debian
// gives to a host's own name, "elsewhere.invalid" another host's, other names in .invalid none.
extern "C" int getaddrinfo(const char* name, const char* service, const addrinfo* hints,
                           addrinfo** found) {
  const std::string_view asked = name != nullptr ? name : "";
  if (asked == "debian.invalid") {
    name = "127.0.1.1";
  } else if (asked == "elsewhere.invalid") {
    name = "192.0.2.1";
  } else if (asked == "localhost") {  // a bare root has no /etc/hosts
    name = "127.0.0.1";
  } else if (asked.ends_with(".invalid")) {
    ++lookups_in_vain;
    return EAI_NONAME;
  }
  using Function = int (*)(const char*, const char*, const addrinfo*, addrinfo**);
  static const auto real = reinterpret_cast<Function>(::dlsym(RTLD_NEXT, "getaddrinfo"));
  return real(name, service, hints, found);
}

TEST_CASE("HOST:PORT names a host and a port") {
  const HostAndPort name = HostAndPort::parse("node0.cluster:29500");
  CHECK(name.host == "node0.cluster");
  CHECK(name.port == 29500);
  const HostAndPort six = HostAndPort::parse("[fe80::1]:1");
  CHECK(six.host == "fe80::1");
  CHECK(six.text() == "[fe80::1]:1");
  for (const char* wrong : {"", "node0", ":1", "node0:", "node0:65536", "node0:-1", "node0:1x",
                            "fe80::1:29500", "[]:1", "node0: 1"}) {
    INFO(wrong);
    CHECK_THAT(message_of<ValueError>([&] { (void)HostAndPort::parse(wrong); }),
               ContainsSubstring("HOST:PORT"));
  }
}

TEST_CASE("a loopback's names are known, and others are not") {
  for (const std::string name : {"127.0.0.1", "127.0.1.1", "::1", "localhost", "localhost6",
                                 "localhost.localdomain", "a.localhost", "ip6-localhost"}) {
    INFO(name);
    CHECK(comm::is_loopback(name));
  }
  for (const std::string name : {"10.0.0.1", "node0", "notlocalhost-3", "localhost-3", "fe80::1"}) {
    INFO(name);
    CHECK_FALSE(comm::is_loopback(name));
  }
}

TEST_CASE("a link carries whole messages of any length in order, both ways") {
  const JobId job = comm::new_job_id();
  Listener listener(loopback(), secret(), job, {});
  Links links = linked(listener, listener.port());
  CHECK(links[0]->job() == job);
  CHECK(links[1]->job() == job);
  const Key key = Key(testing::seed()).fold("messages");
  std::vector<std::string> sent;
  for (const std::size_t size : {0, 1, 3, 4096, 65536, 100'000, 0}) {
    sent.push_back(random_text(key.fold(sent.size()), size));
  }
  sent.emplace_back(Link::kLongestMessage, 'x');
  std::array<std::vector<std::string>, 2> got;
  for (const std::string& message : sent) {
    for (const auto& link : links) link->send(message);
  }
  CHECK(work(nullptr, links, [&] {
    for (std::size_t i = 0; i < 2; ++i) {
      while (auto message = links[i]->receive()) got[i].push_back(*message);
    }
    return got[0].size() == sent.size() && got[1].size() == sent.size();
  }));
  CHECK(got[0] == sent);
  CHECK(got[1] == sent);
  CHECK(message_of<ValueError>(
            [&] { links[0]->send(std::string(Link::kLongestMessage + 1, 'x')); }) != "");
  links.pop_back();  // the other end
  CHECK(work(nullptr, links, [&] { return !links[0]->is_open(); }));
  CHECK(links[0]->why_closed() == "the other end has closed it");
  links[0]->send("nobody reads this");
  CHECK_FALSE(links[0]->receive());
}

TEST_CASE(
    "what the other end has said before it left is heard, whatever is still to be said to it") {
  Listener listener(loopback(), secret(), comm::new_job_id(), {});
  Links links = linked(listener, listener.port());
  links[1]->send("never read");
  links[1]->progress();
  pollfd arrived{links[0]->polled().fd, POLLIN, 0};
  REQUIRE(::poll(&arrived, 1, 10'000) == 1);
  links[0]->send("last words");
  (void)links[0]->release();  // closed with bytes that are not read: the connection is reset
  links[1]->send("more");
  links[1]->progress();
  CHECK(links[1]->receive() == "last words");
  CHECK_FALSE(links[1]->is_open());
  CHECK(links[1]->why_closed() != "the other end has closed it");
}

TEST_CASE("who does not read ends the link, not the memory") {
  Listener listener(loopback(), secret(), comm::new_job_id(), {});
  Links links = linked(listener, listener.port());
  const std::string message(Link::kLongestMessage, 'x');
  for (std::size_t sent = 0; sent <= 2 * Link::kMostQueued; sent += message.size()) {
    links[0]->send(message);
    links[0]->progress();
  }
  CHECK_FALSE(links[0]->is_open());
  CHECK(links[0]->why_closed() == "the other end does not read");
}

TEST_CASE(
    "a wrong secret, another job and no Lockstep are told at once, nobody after the timeout") {
  Listener listener(loopback(), secret(), comm::new_job_id(), {});
  Links links;
  const auto failure_of = [&](const Secret& own, const std::optional<JobId>& job) {
    auto failed = std::async(std::launch::async, [&] {
      return message_of<CommError>(
          [&] { (void)comm::connect(loopback(listener.port()), own, kPatience, job); });
    });
    CHECK(work(&listener, links, [&] { return failed.wait_for(0s) == std::future_status::ready; }));
    return failed.get();
  };
  CHECK_THAT(failure_of(secret(2), std::nullopt), ContainsSubstring("has another secret"));
  CHECK_THAT(failure_of(secret(), JobId{}), ContainsSubstring("is of another job"));
  CHECK(links.empty());
  CHECK_THAT(message_of<comm::AddressInUse>(
                 [&] { const Listener again(loopback(listener.port()), secret(), JobId{}, {}); }),
             ContainsSubstring("Address already in use"));
  for (const char* const elsewhere : {"192.0.2.1", "nobody.invalid"}) {
    const std::string refusal = message_of<comm::AddressInUse>([&] {
      const Listener nowhere({elsewhere, 1}, secret(), JobId{}, {});
    });
    CHECK_THAT(refusal, ContainsSubstring(str("of another type: cannot listen on ", elsewhere)));
  }
  CHECK_THAT(message_of<CommError>([] {
               const Listener elsewhere({"192.0.2.1", 0}, secret(), JobId{}, {});
             }),
             ContainsSubstring("Cannot assign requested address: set --rendezvous"));
  CHECK_THAT(message_of<CommError>([] {
               (void)comm::connect({"nobody.invalid", 1}, secret(), 500ms);
             }),
             ContainsSubstring("nobody.invalid"));

  const Server server;
  const HostAndPort other = loopback(server.port());
  CHECK_THAT(message_of<Timeout>([&] { (void)comm::connect(other, secret(), 100ms); }),
             ContainsSubstring("within 100 ms: Connection refused"));
  server.listen();
  auto told = std::async(std::launch::async, [&] {
    return message_of<CommError>([&] { (void)comm::connect(other, secret(), kPatience); });
  });
  const Descriptor accepted = server.accept();
  send_text(accepted, std::string(kGreetingBytes, 'H'));
  CHECK_THAT(told.get(), ContainsSubstring("is no Lockstep launcher"));
}

TEST_CASE("who has a name of no address of his own listens on all, behind the secret") {
  const auto check = [](const std::string& name, const std::string& address) {
    Listener listener({name, 0}, secret(), comm::new_job_id(), {});
    CHECK_THAT(listener.why_all(),
               ContainsSubstring(str(name, " is ", address,
                                     " here, which is no address of this "
                                     "host in a network: it listens on all that it has")));
    const Links links = linked(listener, listener.port());
    CHECK(links[0]->own_address() == "127.0.0.1");
    CHECK(HostAndPort::parse(links[0]->peer()).host == "127.0.0.1");
    CHECK_THAT(message_of<comm::AddressInUse>([&] {
                 const Listener again({name, listener.port()}, secret(), JobId{}, {});
               }),
               ContainsSubstring("Address already in use"));
  };
  check("debian.invalid", "127.0.1.1");
  check("elsewhere.invalid", "192.0.2.1");
  for (const char* const meant : {"127.0.0.1", "127.0.1.1", "localhost", "0.0.0.0"}) {
    INFO(meant);
    CHECK(Listener({meant, 0}, secret(), JobId{}, {}).why_all().empty());
  }
}

namespace {

// Returns the link that is found while listeners work; `proved` gets their ends of links.
std::unique_ptr<Link> found(const std::vector<Listener*>& listeners,
                            const std::vector<HostAndPort>& places, const comm::Search& search,
                            Links& proved) {
  auto searching =
      std::async(std::launch::async, [&] { return comm::find_listener(places, secret(), search); });
  while (searching.wait_for(1ms) != std::future_status::ready) {
    for (Listener* const each : listeners) {
      for (auto& link : each->progress()) proved.push_back(std::move(link));
    }
  }
  return searching.get();
}

}  // namespace

TEST_CASE("of several places that is found where a listener has the secret") {
  Listener stranger(loopback(), secret(2), comm::new_job_id(), {});
  Listener listener(loopback(), secret(), comm::new_job_id(), {});
  const Server nobody;
  const std::vector<HostAndPort> others{loopback(nobody.port()), loopback(stranger.port())};
  const HostAndPort unknown{"nobody.invalid", 1};
  Links proved;
  CHECK(found({&stranger, &listener}, {unknown, others[0], others[1], loopback(listener.port())},
              {.timeout = kPatience}, proved)
            ->peer() == loopback(listener.port()).text());
  CHECK(proved.size() == 1);
  const std::string refusal =
      message_of<Timeout>([&] { (void)found({&stranger}, others, {.timeout = 300ms}, proved); });
  CHECK_THAT(refusal, ContainsSubstring(others[0].text() + " or " + others[1].text()));
  CHECK_THAT(refusal, ContainsSubstring(others[1].text() + " has another secret"));
  CHECK(proved.size() == 1);
}

TEST_CASE("a launcher of the same job with another secret is refused soon, of another job not") {
  Listener listener(loopback(), secret(2), comm::new_job_id(), {}, "Slurm, job 7");
  const std::vector<HostAndPort> places{loopback(listener.port())};
  Links proved;
  CHECK_THAT(message_of<Timeout>([&] {
               const comm::Search other{.timeout = 4s, .job_name = "Slurm, job 8"};
               (void)found({&listener}, places, other, proved);
             }),
             EndsWith("has another secret: the hosts need the same one"));
  CHECK(listener.other_secret().empty());
  CHECK_THAT(message_of<comm::OtherSecret>([&] {
               const comm::Search same{.timeout = kPatience, .job_name = "Slurm, job 7"};
               (void)found({&listener}, places, same, proved);
             }),
             EndsWith("has another secret"));
  CHECK(listener.other_secret() == "127.0.0.1");
  CHECK(proved.empty());
}

TEST_CASE("launchers of another job are passed over, and named") {
  const auto name = [](int restart) {
    return str("Slurm, job ", std::string(100, '7'), ", restart ", restart);
  };
  Listener earlier(loopback(), secret(), comm::new_job_id(), {}, name(0));
  Listener listener(loopback(), secret(), comm::new_job_id(), {}, name(1));
  Listener unnamed(loopback(), secret(), comm::new_job_id(), {});
  const std::vector<Listener*> all{&earlier, &listener, &unnamed};
  const auto places = mapped(all, [](const Listener* each) { return loopback(each->port()); });
  Links proved;
  std::vector<std::string> told;
  const comm::Search search{.timeout = kPatience,
                            .job_name = name(1),
                            .tell = [&](const auto& text) { told.push_back(text); }};
  CHECK(found(all, places, search, proved)->peer() == places[1].text());
  CHECK(told == std::vector<std::string>{str(places[0].text(), " is of another job (",
                                             name(0).substr(0, 44), "… ",
                                             told.at(0).substr(told.at(0).size() - 17))});
  CHECK(proved.size() == 1);
  CHECK(message_of<Timeout>([&] {
          (void)found(all, {places[2]}, {.timeout = 300ms, .job_name = "x"}, proved);
        }) == str("no connection to ", places[2].text(), " within 300 ms: ", places[2].text(),
                  " is of another job (of no engine)"));
  CHECK(message_of<Timeout>([&] {
          (void)found(all, {places[1]}, {.timeout = 300ms}, proved);
        }).find(" is of another job (Slurm, job 777") != std::string::npos);
}

TEST_CASE(
    "a name that is not known yet is looked up once for all its places, and not all the time") {
  const std::vector<HostAndPort> places{{"later.invalid", 1}, {"later.invalid", 2}};
  lookups_in_vain = 0;
  std::string told;
  const comm::Search search{.timeout = 300ms,
                            .unknown_name_hint = "; a hint",
                            .tell = [&](const std::string& missing) { told += missing; }};
  const std::string refusal =
      message_of<Timeout>([&] { (void)comm::find_listener(places, secret(), search); });
  CHECK(refusal == "no connection to later.invalid:1 or later.invalid:2 within 300 ms: " + told);
  CHECK_THAT(told, StartsWith("later.invalid: ") && EndsWith("; a hint"));
  CHECK(lookups_in_vain == 1);
}

TEST_CASE("strangers get no further than a greeting, in bounded number, and a launcher still in") {
  const Key key = Key(testing::seed()).fold("strangers");
  Listener listener(loopback(), secret(), comm::new_job_id(), {.most_unproved = 16});
  Links links;
  std::vector<Descriptor> strangers;
  std::string proof;  // a right one, of another connection
  {
    // This server stands between a launcher and the listener, and reads along.
    Listener* const real = &listener;
    const Server server;
    server.listen();
    auto connected = std::async(std::launch::async, [&] {
      return message_of<CommError>(
          [&] { (void)comm::connect(loopback(server.port()), secret(), 500ms); });
    });
    const Descriptor launcher = server.accept();
    const Descriptor behind = connected_to(listener.port());
    REQUIRE(work(real, links, [&] { return real->unproved() == 1; }));
    send_text(launcher, received(behind, kGreetingBytes));
    proof = received(launcher, kProofBytes);
    ::shutdown(launcher.get(), SHUT_RDWR);
    connected.get();
  }
  REQUIRE(proof.size() == kProofBytes);
  constexpr int kMany = 1000;
  for (int i = 0; i < kMany; ++i) {
    Descriptor stranger = connected_to(listener.port());
    REQUIRE(stranger.open());
    switch (i % 5) {
      case 0:
        send_text(stranger, random_text(key.fold(i), 80));
        break;
      case 1:
        send_text(stranger, proof.substr(0, 40));
        break;
      case 2:
        send_text(stranger, proof);
        break;
      case 3:
        send_text(stranger, "GET / HTTP/1.1\r\n\r\n");
        break;
      default:
        break;
    }
    if (i % 7 == 0) stranger.close();
    if (i % 4 == 0) strangers.push_back(std::move(stranger));
    for (auto& proved : listener.progress()) links.push_back(std::move(proved));
    CHECK(listener.unproved() <= 16);
  }
  CHECK(links.empty());
  const Links proved = linked(listener, listener.port());
  CHECK(proved[0]->is_open());
  CHECK(listener.unproved() <= 16);
}

TEST_CASE("a greeting that is not finished in time is dropped") {
  Listener listener(loopback(), secret(), comm::new_job_id(), {.patience = 50ms});
  Links links;
  CHECK(listener.when() == std::chrono::milliseconds::max());
  const Descriptor stranger = connected_to(listener.port());
  send_text(stranger, "lockstep link 4\n");
  REQUIRE(work(&listener, links, [&] { return listener.unproved() == 1; }));
  CHECK(listener.when() <= 50ms);
  CHECK(work(&listener, links, [&] { return listener.unproved() == 0; }));
  CHECK(received(stranger, 10 * kGreetingBytes).size() == kGreetingBytes);
  CHECK(links.empty());
}

TEST_CASE("what is changed, cut or put in on the way closes a link, and is never a message") {
  std::cout << "link: LOCKSTEP_SEED=" << testing::seed() << std::endl;
  constexpr std::size_t kCases = 200;
  Listener listener(loopback(), secret(), comm::new_job_id(), {});
  const Server server;
  server.listen();
  for (std::size_t i = 0; i < kCases; ++i) {
    const Key key = Key(testing::seed()).fold("damage").fold(i);
    Links links;
    auto connected = std::async(std::launch::async, [&] {
      return comm::connect(loopback(server.port()), secret(), kPatience);
    });
    const Descriptor front = server.accept();
    const Descriptor behind = connected_to(listener.port());
    REQUIRE(work(&listener, links, [&] { return listener.unproved() == 1; }));
    send_text(front, received(behind, kGreetingBytes));
    send_text(behind, received(front, kProofBytes));
    REQUIRE(work(&listener, links, [&] { return links.size() == 1; }));
    send_text(front, received(behind, kAnswerBytes));
    const auto sender = connected.get();
    std::vector<std::string> sent;
    std::size_t bytes = 0;
    for (std::uint64_t m = 0; m < 3; ++m) {
      sent.push_back(random_text(key.fold(m), key.fold("size").fold(m).bits() % 100));
      sender->send(sent.back());
      bytes += 4 + sent.back().size() + 32;
    }
    sender->progress();
    std::string stream = received(front, bytes);
    REQUIRE(stream.size() == bytes);
    const std::size_t place = key.fold("place").bits() % bytes;
    switch (i % 4) {
      case 0:
        stream[place] = static_cast<char>(stream[place] ^ (1 << (i / 4 % 8)));
        break;
      case 1:
        stream.erase(place, 1 + key.fold("cut").bits() % 50);
        break;
      case 2:
        stream.insert(place, random_text(key.fold("new"), 40));
        break;
      default: {  // the first message comes twice
        const std::size_t first = 4 + sent[0].size() + 32;
        stream.insert(first, stream.substr(0, first));
      }
    }
    send_text(behind, stream);
    ::shutdown(behind.get(), SHUT_WR);
    INFO("case " << i << ", place " << place << " of " << bytes);
    CHECK(work(nullptr, links, [&] { return !links[0]->is_open(); }));
    std::size_t count = 0;
    while (const auto message = links[0]->receive()) {
      REQUIRE(count < sent.size());
      CHECK(*message == sent[count++]);
    }
    CHECK(count < sent.size() + (i % 4 == 3 ? 0 : 1));
  }
}
