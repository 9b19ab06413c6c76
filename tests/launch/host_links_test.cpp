#include "framework/launch/host_links.h"

#include <array>
#include <chrono>
#include <future>
#include <optional>
#include <utility>
#include <variant>

#include "framework/base/poll_set.h"
#include "framework/base/record.h"
#include "framework/comm/network/connect.h"
#include "framework/comm/network/listener.h"
#include "tests/catch.h"

using namespace lockstep;
using namespace std::chrono_literals;
using Catch::Matchers::StartsWith;
using launcher::HostLinks;

namespace {

// The launchers of three hosts, linked.
struct ThreeHosts {
  std::array<HostLinks, 3> hosts{HostLinks(0, 3), HostLinks(1, 3), HostLinks(2, 3)};

  ThreeHosts() {
    const comm::Secret secret({std::byte{1}});
    comm::Listener listener({"127.0.0.1", 0}, secret, comm::new_job_id(), {});
    for (std::size_t host = 1; host < hosts.size(); ++host) {
      auto connected = std::async(std::launch::async, [&] {
        return comm::connect({"127.0.0.1", listener.port()}, secret, 10s);
      });
      while (hosts[0].peers().size() < host) {
        PollSet polled;
        listener.add_to(polled);
        polled.wait(10ms);
        for (auto& link : listener.progress()) hosts[0].peers().push_back({host, std::move(link)});
      }
      hosts[host].peers().push_back({0, connected.get()});
    }
  }

  // Returns the next message to a host; nothing if none comes soon, or if a link has a problem.
  std::optional<HostLinks::Heard> heard_by(std::size_t host) {
    const auto deadline = std::chrono::steady_clock::now() + 10s;
    while (std::chrono::steady_clock::now() < deadline) {
      for (HostLinks& each : hosts) each.progress();
      if (auto heard = hosts[host].receive()) return heard;
      for (const auto& peer : hosts[host].peers()) {
        if (!peer.problem.empty()) return std::nullopt;
      }
      PollSet polled;
      hosts[host].add_to(polled);
      polled.wait(10ms);
    }
    return std::nullopt;
  }
  int signal_heard_by(std::size_t host) {
    const auto heard = heard_by(host);
    const auto* const asked = heard ? std::get_if<launcher::Asked>(&heard->message) : nullptr;
    return asked != nullptr ? asked->signal : -1;
  }
};

}  // namespace

TEST_CASE("host 0 tells all others, and others tell host 0") {
  ThreeHosts three;
  three.hosts[0].tell(launcher::Asked{1});
  CHECK(three.signal_heard_by(1) == 1);
  CHECK(three.signal_heard_by(2) == 1);
  three.hosts[2].tell(launcher::Asked{2});
  const auto heard = three.heard_by(0);
  REQUIRE(heard);
  CHECK(heard->from->host == 2);
  three.hosts[0].tell(launcher::Asked{3}, heard->from);
  three.hosts[0].send(2, launcher::Asked{4});
  CHECK(three.signal_heard_by(1) == 3);
  CHECK(three.signal_heard_by(2) == 4);
}

TEST_CASE("what is said of another run of the job is not heard, but who is ready for it") {
  ThreeHosts three;
  three.hosts[1].tell(launcher::Asked{1});
  three.hosts[1].begin_run();
  three.hosts[1].tell(launcher::Ready{});
  three.hosts[1].tell(launcher::Asked{2});
  CHECK(three.signal_heard_by(0) == 1);
  three.hosts[2].tell(launcher::Asked{3});
  CHECK(three.signal_heard_by(0) == 3);  // not 2
  auto& peers = three.hosts[0].peers();
  CHECK_FALSE(three.hosts[0].is_ready(peers[0]));
  three.hosts[0].begin_run();
  CHECK(three.hosts[0].is_ready(peers[0]));
  CHECK_FALSE(three.hosts[0].is_ready(peers[1]));
  three.hosts[2].tell(launcher::Asked{4});
  three.hosts[1].tell(launcher::Asked{5});
  CHECK(three.signal_heard_by(0) == 5);
}

TEST_CASE("a host that is gone, or says what is no message, is told of") {
  ThreeHosts three;
  auto& peers = three.hosts[0].peers();
  three.hosts[1].peers()[0].link->send("nonsense");
  CHECK(!three.heard_by(0));
  CHECK_THAT(peers[0].name() + peers[0].problem,
             StartsWith("host 1 (127.0.0.1:") &&
                 ContainsSubstring(
                     ") says what no launcher of this version says: a message is damaged: "));
  three.hosts[2].tell(launcher::Asked{6});
  three.hosts[2].flush();
  three.hosts[2].peers().clear();
  peers[0].problem.clear();
  CHECK(three.signal_heard_by(0) == 6);  // the link is read to its end
  CHECK(!three.heard_by(0));
  CHECK_THAT(peers[1].problem, StartsWith(" is gone: "));
}
