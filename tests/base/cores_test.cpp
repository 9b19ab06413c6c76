#include "framework/base/cores.h"

#include <chrono>
#include <cstdint>
#include <fstream>
#include <limits>
#include <stop_token>
#include <string>
#include <thread>

#include <sched.h>

#include "tests/base/control_groups.h"
#include "tests/catch.h"
#include "tests/support/refuse_calls.h"

using namespace lockstep;
using lockstep::testing::ControlGroups;

namespace {

constexpr std::int64_t kNoQuota = std::numeric_limits<std::int64_t>::max();

}  // namespace

TEST_CASE("what threads have of cores, and wait for, is counted where the system tells it") {
  double run = 0;
  if (!(std::ifstream("/proc/self/schedstat") >> run) || run == 0) return;
  const CoreTime before = core_time();
  cpu_set_t one;
  CPU_ZERO(&one);
  CPU_SET(static_cast<std::size_t>(::sched_getcpu()), &one);
  const auto spin = [&](const std::stop_token& stop) {
    (void)!::sched_setaffinity(0, sizeof one, &one);
    while (!stop.stop_requested()) continue;
  };
  const std::jthread first(spin), second(spin);  // one of them waits
  const auto end = std::chrono::steady_clock::now() + std::chrono::seconds(20);
  const auto is_seen = [&] {
    const CoreTime now = core_time();
    return now.waited_s >= before.waited_s + 0.01 && now.ran_s >= before.ran_s + 0.01;
  };
  while (!is_seen() && std::chrono::steady_clock::now() < end) continue;
  CHECK(is_seen());
}

TEST_CASE("usable cores are at most those on which the process may run") {
  CHECK(usable_cores() >= 1);
  cpu_set_t before;
  REQUIRE(::sched_getaffinity(0, sizeof before, &before) == 0);
  CHECK(usable_cores() <= CPU_COUNT(&before));
  cpu_set_t one;
  CPU_ZERO(&one);
  for (std::size_t core = 0; CPU_COUNT(&one) == 0; ++core) {
    if (CPU_ISSET(core, &before)) CPU_SET(core, &one);
  }
  REQUIRE(::sched_setaffinity(0, sizeof one, &one) == 0);
  const std::int64_t cores = usable_cores();
  REQUIRE(::sched_setaffinity(0, sizeof before, &before) == 0);
  CHECK(cores == 1);
}

TEST_CASE("a quota of version 2, of the own group or of one above, limits the cores") {
  const ControlGroups groups("0::/job/step\n");
  const auto cores = [&] { return cores_of_control_groups(groups.root()); };
  CHECK(cores() == kNoQuota);
  groups.write("sys/fs/cgroup/job/step/cpu.max", "max 100000\n");
  CHECK(cores() == kNoQuota);
  groups.write("sys/fs/cgroup/job/cpu.max", "350000 100000\n");
  CHECK(cores() == 3);
  groups.write("sys/fs/cgroup/job/step/cpu.max", "100000 50000\n");
  CHECK(cores() == 2);
  // A part of a core is one math thread all the same.
  groups.write("sys/fs/cgroup/job/step/cpu.max", "20000 100000\n");
  CHECK(cores() == 1);
}

TEST_CASE("a quota of version 1, of the own group or of one above, limits the cores") {
  const ControlGroups groups("12:memory:/elsewhere\n4:cpu,cpuacct:/job/step\n0::/\n");
  const auto cores = [&] { return cores_of_control_groups(groups.root()); };
  const std::string cpu = "sys/fs/cgroup/cpu,cpuacct/";
  groups.write(cpu + "job/step/cpu.cfs_quota_us", "-1\n");
  groups.write(cpu + "job/step/cpu.cfs_period_us", "100000\n");
  CHECK(cores() == kNoQuota);
  groups.write(cpu + "job/cpu.cfs_quota_us", "250000\n");
  groups.write(cpu + "job/cpu.cfs_period_us", "100000\n");
  CHECK(cores() == 2);
  groups.write(cpu + "job/step/cpu.cfs_quota_us", "199999\n");
  CHECK(cores() == 1);
}

TEST_CASE("a container's own quota counts, and files that say nothing don't") {
  const ControlGroups container("3:cpu:/docker/0123abcd\n");
  container.write("sys/fs/cgroup/cpu/cpu.cfs_quota_us", "400000\n");
  container.write("sys/fs/cgroup/cpu/cpu.cfs_period_us", "100000\n");
  CHECK(cores_of_control_groups(container.root()) == 4);
  for (const std::string text : {"", "\n", "none\n", "100000\n", "100000 0\n", "-5 100000\n"}) {
    INFO(text);
    const ControlGroups groups("0::/\n");
    groups.write("sys/fs/cgroup/cpu.max", text);
    CHECK(cores_of_control_groups(groups.root()) == kNoQuota);
  }
  CHECK(cores_of_control_groups("/there/is/no/such/root") == kNoQuota);
}

TEST_CASE("the affinity counts on a host with more cores than a cpu_set_t has") {
  std::int64_t cores = 0;
  std::thread([&] {
    cpu_set_t one;
    CPU_ZERO(&one);
    CPU_SET(static_cast<std::size_t>(::sched_getcpu()), &one);
    if (::sched_setaffinity(0, sizeof one, &one) != 0) return;
    // There the system refuses a set that is smaller than its own.
    testing::filter_calls({
        BPF_STMT(BPF_LD | BPF_W | BPF_ABS, offsetof(seccomp_data, nr)),
        BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, SYS_sched_getaffinity, 0, 3),
        BPF_STMT(BPF_LD | BPF_W | BPF_ABS, offsetof(seccomp_data, args[1])),
        BPF_JUMP(BPF_JMP | BPF_JGT | BPF_K, sizeof(cpu_set_t), 1, 0),
        BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_ERRNO | EINVAL),
        BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_ALLOW),
    });
    cores = usable_cores();
  }).join();
  CHECK(cores == 1);
}
