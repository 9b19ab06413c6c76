#include "tests/hosts/test_network.h"

#include <chrono>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <iterator>
#include <sstream>
#include <stdexcept>
#include <utility>

#include <sys/types.h>
#include <unistd.h>

#include "framework/base/text.h"
#include "tests/support/files.h"

namespace lockstep::testing {
namespace {

namespace fs = std::filesystem;

std::string proc(pid_t pid, const std::string& rest) {
  return str("/proc/", pid, "/", rest);
}

std::vector<std::string> words_of(const std::string& line) {
  std::istringstream fields(line);
  return {std::istream_iterator<std::string>(fields), {}};
}

// A process may end while it is looked at.
std::string name_of_process(pid_t pid) {
  std::ifstream file(proc(pid, "comm"));
  std::string name;
  std::getline(file, name);
  return name;
}

}  // namespace

TestNetwork::TestNetwork(const Options& options)
    : HostNetwork(
          {.hosts = options.hosts, .rate_mbit = options.rate_mbit, .delay_ms = options.delay_ms}) {
  if (options.loss_percent == 0) return;
  for (std::size_t host = 0; host < size(); ++host) {
    // Packets are lost one by one, not 64 KiB at a time.
    run_script(keeper(host), str("ip link set dev eth0 gso_max_segs 1\n"
                                 "nft 'table netdev test { counter lost {}; chain arrivals { "
                                 "type filter hook ingress device eth0 priority 0; "
                                 "meta protocol ip numgen random mod 100 < ",
                                 options.loss_percent, " counter name lost drop; }; }'\n"));
  }
}

void TestNetwork::enter(std::size_t host) const {
  for (const char* kind : {"net", "uts", "mnt"}) enter_namespace(keeper(host), kind);
  const std::string config = home(host) / ".config";
  if (::chdir(home(host).c_str()) != 0 || ::setenv("HOME", home(host).c_str(), 1) != 0 ||
      ::setenv("XDG_CONFIG_HOME", config.c_str(), 1) != 0) {
    throw std::runtime_error("can't enter the home of " + name(host));
  }
}

void TestNetwork::unplug(std::size_t host) {
  run_script(keepers()[0], str("ip link set port", host, " down"));
}

void TestNetwork::plug(std::size_t host) {
  run_script(keepers()[0], str("ip link set port", host, " up"));
  wait_for_cable(host);
}

std::size_t TestNetwork::dropped(std::size_t host) const {
  const std::string counter = run_script(keeper(host), "nft list counter netdev test lost");
  const std::string before = "packets ";
  const std::size_t at = counter.find(before);
  if (at == std::string::npos) throw std::runtime_error("can't count lost packets: " + counter);
  return std::stoul(counter.substr(at + before.size()));
}

std::vector<std::string> TestNetwork::traces(std::size_t host) const {
  std::vector<std::string> left;
  for (const pid_t pid : processes(host))
    left.push_back(str(name(host), ": process ", pid, " ", name_of_process(pid)));
  for (const char* table : {"net/tcp", "net/tcp6"}) {
    for (const std::string& line : lines_of(read_text(proc(keeper(host), table)))) {
      const std::vector<std::string> words = words_of(line);
      constexpr const char* kListens = "0A";
      if (words.size() > 3 && words[3] == kListens) {
        left.push_back(str(name(host), ": a socket listens at ", words[1]));
      }
    }
  }
  for (const auto& entry : fs::directory_iterator(proc(keeper(host), "root/dev/shm"))) {
    left.push_back(str(name(host), ": /dev/shm/", entry.path().filename().string()));
  }
  return left;
}

Lines TestNetwork::left_behind() const {
  std::vector<std::string> left;
  const auto none_left = [&] {
    left.clear();
    for (std::size_t host = 0; host < size(); ++host) {
      for (std::string& trace : traces(host)) left.push_back(std::move(trace));
    }
    return left.empty();
  };
  static_cast<void>(eventually(none_left, std::chrono::seconds(1)));
  return left;
}

std::unique_ptr<ChildProgram> run_on(const TestNetwork& network, std::size_t host,
                                     const std::function<int()>& body) {
  return std::make_unique<ChildProgram>([&network, host, &body] {
    network.enter(host);
    return body();
  });
}

}  // namespace lockstep::testing
