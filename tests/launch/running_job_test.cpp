#include "framework/launch/running_job.h"

#include <chrono>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <future>
#include <memory>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "framework/base/errors.h"
#include "framework/base/socket.h"
#include "framework/calls/call_table.h"
#include "framework/comm/network/connect.h"
#include "framework/comm/network/listener.h"
#include "framework/comm/socket_store.h"
#include "framework/launch/host_meeting.h"
#include "tests/catch.h"
#include "tests/support/captured_stderr.h"
#include "tests/support/occurrences.h"

using namespace lockstep;

namespace {

// The launchers of some hosts in one thread, each with a store and a worker that asks it.
class LinkedHosts {
 public:
  explicit LinkedHosts(std::size_t count) : stores_(count) {
    const std::vector<std::int64_t> any(count);
    for (std::size_t host = 0; host < count; ++host) {
      const auto replicas = static_cast<std::int64_t>(count);
      hosts_.push_back({launcher::HostLinks(host, count),
                        launcher::make_plan({.replicas = replicas, .workers = replicas}, any,
                                            std::vector<std::int64_t>(count, 8))});
    }
    const comm::Secret secret({std::byte{1}});
    comm::Listener listener({"127.0.0.1", 0}, secret, comm::new_job_id(), {});
    for (std::size_t host = 1; host < count; ++host) {
      auto connected = std::async(std::launch::async, [&] {
        return comm::connect(comm::HostAndPort{"127.0.0.1", listener.port()}, secret,
                             std::chrono::seconds(10));
      });
      std::vector<std::unique_ptr<comm::Link>> links;
      while (links.empty()) links = listener.progress();
      hosts_[0].links.peers().push_back({host, std::move(links[0])});
      while (connected.wait_for(std::chrono::seconds(0)) != std::future_status::ready) {
        hosts_[0].links.progress();
      }
      hosts_[host].links.peers().push_back({0, connected.get()});
    }
    for (std::size_t host = 0; host < count; ++host) {
      tables_.push_back(std::make_unique<calls::CallTable>(static_cast<int>(count)));
      jobs_.push_back(std::make_unique<launcher::RunningJob>(hosts_[host], options_, stores_[host],
                                                             *tables_[host]));
    }
  }

  // Lets a host's worker ask for a key, or publish a value.
  std::optional<std::string> ask(std::size_t host, const comm::StoreRequest& request) {
    const auto [worker, launcher] = make_socket_pair();
    REQUIRE(send_message(worker.get(), encode(request)));
    REQUIRE(stores_[host].answer(launcher.get()));
    return decode<std::optional<std::string>>(receive_message(worker.get()), "an answer");
  }
  // Returns true if the key comes to a host's store while the hosts go on for so long.
  bool comes_to(std::size_t host, const std::string& key,
                std::chrono::milliseconds patience = std::chrono::seconds(10)) {
    const auto deadline = std::chrono::steady_clock::now() + patience;
    while (!stores_[host].find(key) && std::chrono::steady_clock::now() < deadline) {
      for (const auto& job : jobs_) job->progress();
    }
    return stores_[host].find(key).has_value();
  }
  bool stays_away_from(std::size_t host, const std::string& key) {
    return !comes_to(host, key, std::chrono::milliseconds(20));
  }

 private:
  const LaunchOptions options_;
  std::vector<launcher::Hosts> hosts_;
  std::vector<comm::StoreServer> stores_;
  std::vector<std::unique_ptr<calls::CallTable>> tables_;
  std::vector<std::unique_ptr<launcher::RunningJob>> jobs_;
};

}  // namespace

TEST_CASE("a host hears of what its workers ask for, and of nothing else") {
  LinkedHosts hosts(3);
  // Hosts ask for a key before it is there, and after.
  CHECK(hosts.ask(1, {"address/2"}) == std::nullopt);
  CHECK(hosts.stays_away_from(1, "address/2"));
  (void)hosts.ask(2, {"address/2", "b"});
  CHECK(hosts.comes_to(1, "address/2"));
  CHECK(hosts.ask(1, {"address/2"}) == "b");
  CHECK(hosts.comes_to(0, "address/2"));
  (void)hosts.ask(0, {"address/0", "a"});
  CHECK(hosts.ask(2, {"address/0"}) == std::nullopt);
  CHECK(hosts.comes_to(2, "address/0"));
  CHECK(hosts.stays_away_from(1, "address/0"));
  (void)hosts.ask(1, {"address/1", "c"});
  CHECK(hosts.comes_to(0, "address/1"));
  CHECK(hosts.stays_away_from(2, "address/1"));
  // Host 0's workers need not ask others.
  CHECK(hosts.ask(0, {"address/1"}) == "c");
  // Keys between a host's workers stay on their host.
  (void)hosts.ask(2, {"process/0", "d"});
  CHECK(hosts.ask(1, {"process/0"}) == std::nullopt);
  CHECK(hosts.stays_away_from(0, "process/0"));
}

// On one host a group's key may be used again. On several hosts equal keys mean one call.
TEST_CASE("a stall that several hosts find is told once, and one of a host alone each time") {
  for (const std::size_t number : {1U, 2U}) {
    launcher::Hosts hosts{
        launcher::HostLinks(0, number),
        launcher::make_plan({.replicas = 2, .workers = 2}, std::vector<std::int64_t>(number),
                            std::vector<std::int64_t>(number, 8))};
    calls::CallTable table(2);
    comm::StoreServer store;
    std::vector<std::string> marked;
    const LaunchOptions options{.after_stall = [&](const std::string& warning) {
      marked.push_back(warning);
      throw DataError("no room");
    }};
    launcher::RunningJob job(hosts, options, store, table);
    std::string told;
    {
      const testing::CapturedStderr captured;
      for (const int times : {1, 1, 2}) job.warn({1, 1, times, "stalled"});
      told = captured.text();
    }
    INFO(told);
    const std::size_t times = number == 1 ? 3 : 2;
    CHECK(testing::count(told, "lockstep: warning: stalled\n") == times);
    CHECK(marked == std::vector<std::string>(times, "stalled"));
    CHECK(testing::count(told, "lockstep: warning: after_stall: DataError: no room\n") == times);
  }
}
