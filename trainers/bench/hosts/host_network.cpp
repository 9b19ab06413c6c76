#include "trainers/bench/hosts/host_network.h"

#include <algorithm>
#include <cerrno>
#include <cmath>
#include <csignal>
#include <cstdlib>
#include <cstring>
#include <fstream>
#include <iostream>
#include <stdexcept>

#include <fcntl.h>
#include <sched.h>
#include <sys/mount.h>
#include <sys/stat.h>
#include <unistd.h>

#include "framework/base/text.h"
#include "trainers/bench/hosts/frame_relay.h"

namespace lockstep::testing {
namespace {

namespace fs = std::filesystem;

constexpr const char* kReady = "ready\n";
// So that `ip` and its like are found for whoever has become root by other ways.
constexpr const char* kPath = "PATH=/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin";

void check(int result, const std::string& what) {
  if (result != 0) throw std::runtime_error(what + ": " + std::strerror(errno));
}

std::string proc(pid_t pid, const std::string& rest) {
  return str("/proc/", pid, "/", rest);
}

void wait_until_ready(ChildProgram& keeper) {
  if (eventually([&] { return keeper.out() == kReady || !keeper.running(); }) && keeper.running()) {
    return;
  }
  throw std::runtime_error(
      "can't make hosts of a test network, which needs root and a kernel with namespaces and "
      "TUN: " +
      keeper.err());
}

[[noreturn]] void stay() {
  std::cout << kReady << std::flush;
  while (true) ::pause();
}

// Whether a thread of the process, a folder of /proc, is in the network namespace: one that has
// ended is in none, though its process may wait for others.
bool runs_in(const fs::path& process, const fs::path& network) {
  std::error_code gone;
  const fs::directory_iterator threads(process / "task", gone);
  return !gone && std::any_of(begin(threads), end(threads), [&](const auto& thread) {
    std::error_code ended;
    return fs::read_symlink(thread.path() / "ns/net", ended) == network;
  });
}

std::string first_line(const fs::path& file) {
  std::ifstream in(file);
  std::string line;
  std::getline(in, line);
  return line;
}

}  // namespace

CoreShare::CoreShare(const std::string& name, double cores) {
  const bool is_unified = fs::exists("/sys/fs/cgroup/cgroup.controllers");
  folder_ = fs::path(is_unified ? "/sys/fs/cgroup" : "/sys/fs/cgroup/cpu") / name;
  const std::string what = "a host's share of the cores needs the control group ";
  check(::mkdir(folder_.c_str(), 0700), what + folder_.string());
  const auto write = [&](const char* file, const auto&... text) {
    std::ofstream out(folder_ / file);
    out << str(text...) << std::flush;
    if (out) return;
    ::rmdir(folder_.c_str());
    throw std::runtime_error(what + (folder_ / file).string());
  };
  constexpr int kPeriod =
      10'000;  // microseconds: short, so that a step waits for many, not for one
  const std::int64_t quota = std::llround(cores * kPeriod);
  if (is_unified) {
    write("cpu.max", quota, ' ', kPeriod);
  } else {
    write("cpu.cfs_period_us", kPeriod);
    write("cpu.cfs_quota_us", quota);
  }
}

CoreShare::~CoreShare() {
  ::rmdir(folder_.c_str());
}

std::vector<std::string> CoreShare::command(const std::vector<std::string>& words) const {
  std::vector<std::string> command{"/bin/sh", "-c", "echo $$ >\"$0\" && exec \"$@\"",
                                   folder_ / "cgroup.procs"};
  command.insert(command.end(), words.begin(), words.end());
  return command;
}

HostNetwork::HostNetwork(const Options& options) {
  for (std::size_t host = 0; host < options.hosts && options.cores > 0; ++host) {
    shares_.push_back(
        std::make_unique<CoreShare>(str("lockstep-", ::getpid(), '-', host), options.cores));
  }
  std::string name_of_folder = (fs::temp_directory_path() / "lockstep-XXXXXX").string();
  check(::mkdtemp(name_of_folder.data()) == nullptr ? -1 : 0, "can't make " + name_of_folder);
  folder_ = name_of_folder;
  std::string names = "127.0.0.1 localhost\n";
  for (std::size_t host = 0; host < options.hosts; ++host) {
    names += address(host) + " " + name(host) + "\n";
  }
  std::ofstream(folder_ / "hosts") << names;
  switch_ = keep_namespaces("switch");
  for (std::size_t host = 0; host < options.hosts; ++host) {
    fs::create_directories(home(host) / ".config");
    hosts_.push_back(keep_namespaces(name(host)));
  }
  wait_until_ready(*switch_);
  for (const Keeper& host : hosts_) wait_until_ready(*host);
  connect(options);
}

HostNetwork::~HostNetwork() {
  for (std::size_t host = 0; host < size(); ++host) {
    for (const pid_t pid : processes(host)) ::kill(pid, SIGKILL);
    static_cast<void>(eventually([&] { return processes(host).empty(); }));
  }
  std::error_code ignored;
  fs::remove_all(folder_, ignored);
}

void HostNetwork::enter_namespace(pid_t keeper, const char* kind) {
  const std::string file = proc(keeper, std::string("ns/") + kind);
  const Descriptor entry(::open(file.c_str(), O_RDONLY | O_CLOEXEC));
  check(entry.open() ? ::setns(entry.get(), 0) : -1, "can't enter " + file);
}

std::string HostNetwork::run_script(pid_t keeper, const std::string& script) {
  const Ended end = run_program({"/usr/bin/nsenter", "--net=" + proc(keeper, "ns/net"),
                                 "/usr/bin/env", kPath, "/bin/sh", "-ec", script});
  if (end.status != 0) throw std::runtime_error("can't set up a test network: " + end.err);
  return end.out;
}

std::string HostNetwork::address(std::size_t host) {
  return str("10.77.0.", host + 1);
}

std::string HostNetwork::name(std::size_t host) {
  return str("host", host);
}

fs::path HostNetwork::home(std::size_t host) const {
  return folder_ / name(host);
}

HostNetwork::Keeper HostNetwork::keep_namespaces(const std::string& name) const {
  return std::make_unique<ChildProgram>([this, name]() -> int {
    check(::unshare(CLONE_NEWNET | CLONE_NEWUTS | CLONE_NEWNS), "unshare");
    check(::mount("none", "/", nullptr, MS_REC | MS_PRIVATE, nullptr), "mount /");
    check(::mount("sysfs", "/sys", "sysfs", 0, nullptr), "mount /sys");
    check(::mount("tmpfs", "/dev/shm", "tmpfs", 0, nullptr), "mount /dev/shm");
    check(::mount((folder_ / "hosts").c_str(), "/etc/hosts", nullptr, MS_BIND, nullptr),
          "mount /etc/hosts");
    check(::sethostname(name.data(), name.size()), "sethostname");
    stay();
  });
}

HostNetwork::Keeper HostNetwork::relay(std::chrono::nanoseconds delay) const {
  return std::make_unique<ChildProgram>([this, delay]() -> int {
    std::vector<Cable> cables(size());
    for (std::size_t host = 0; host < size(); ++host) {
      enter_namespace(hosts_[host]->pid(), "net");
      cables[host].host = open_tap("eth0");
    }
    enter_namespace(switch_->pid(), "net");
    for (std::size_t host = 0; host < size(); ++host)
      cables[host].port = open_tap(str("port", host));
    std::cout << kReady << std::flush;
    relay_frames(cables, delay);
  });
}

void HostNetwork::connect(const Options& options) {
  // The kernel hands on packets of 64 KiB, which tbf cuts up if its burst is smaller. A slow cable
  // needs that to be even. For a fast one it costs time that a network card would save.
  const char* const burst = options.rate_mbit < 1000 ? "32kb" : "70kb";
  const auto limit = [&](const std::string& device) {
    return options.rate_mbit == 0 ? std::string()
                                  : str("tc qdisc add dev ", device, " root tbf rate ",
                                        options.rate_mbit, "mbit burst ", burst, " latency 50ms\n");
  };
  if (options.delay_ms > 0) {
    relay_ = relay(std::chrono::nanoseconds(std::llround(options.delay_ms * 1e6)));
    wait_until_ready(*relay_);
  }
  run_script(switch_->pid(), "ip link add name switch type bridge\nip link set switch up\n");
  for (std::size_t host = 0; host < size(); ++host) {
    const std::string port = str("port", host);
    std::string at_switch;
    if (!relay_) {
      at_switch = str("ip link add name ", port, " type veth peer name eth0 netns ",
                      hosts_[host]->pid(), "\n");
    }
    run_script(switch_->pid(),
               str(at_switch, "ip link set ", port, " master switch up\n", limit(port)));
    run_script(hosts_[host]->pid(), str("ip link set lo up\nip address add ", address(host),
                                        "/24 dev eth0\nip link set eth0 up\n", limit("eth0")));
  }
  for (std::size_t host = 0; host < size(); ++host) wait_for_cable(host);
}

// Until the kernel has noticed that the cable is in, the switch hands nothing on.
void HostNetwork::wait_for_cable(std::size_t host) const {
  constexpr const char* kForwarding = "3";
  const std::string port =
      proc(switch_->pid(), str("root/sys/class/net/port", host, "/brport/state"));
  const std::string device = proc(hosts_[host]->pid(), "root/sys/class/net/eth0/carrier");
  const bool is_in =
      eventually([&] { return first_line(port) == kForwarding && first_line(device) == "1"; });
  if (!is_in) throw std::runtime_error("a test network's cable does not come up: " + device);
}

std::vector<std::string> HostNetwork::command(std::size_t host,
                                              const std::vector<std::string>& program,
                                              const fs::path& folder) const {
  const pid_t keeper = hosts_.at(host)->pid();
  std::vector<std::string> command{
      "/usr/bin/nsenter",
      "--net=" + proc(keeper, "ns/net"),
      "--uts=" + proc(keeper, "ns/uts"),
      "--mount=" + proc(keeper, "ns/mnt"),
      "/usr/bin/env",
      "--chdir=" + (folder.empty() ? home(host) : folder).string(),
      "HOME=" + home(host).string(),
      "XDG_CONFIG_HOME=" + (home(host) / ".config").string(),
  };
  command.insert(command.end(), program.begin(), program.end());
  return shares_.empty() ? command : shares_[host]->command(command);
}

std::string HostNetwork::sent_bytes(std::size_t host) const {
  return proc(hosts_.at(host)->pid(), "root/sys/class/net/eth0/statistics/tx_bytes");
}

std::vector<pid_t> HostNetwork::processes(std::size_t host) const {
  const pid_t keeper = hosts_.at(host)->pid();
  const fs::path own = fs::read_symlink(proc(keeper, "ns/net"));
  std::vector<pid_t> found;
  for (const auto& entry : fs::directory_iterator("/proc")) {
    const std::string name = entry.path().filename();
    if (name.find_first_not_of("0123456789") != std::string::npos) continue;
    const auto pid = static_cast<pid_t>(std::stol(name));
    if (pid != keeper && runs_in(entry.path(), own)) found.push_back(pid);
  }
  return found;
}

std::vector<pid_t> HostNetwork::keepers() const {
  std::vector<pid_t> pids{switch_->pid()};
  for (const Keeper& host : hosts_) pids.push_back(host->pid());
  if (relay_) pids.push_back(relay_->pid());
  return pids;
}

}  // namespace lockstep::testing
