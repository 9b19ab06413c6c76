#include <algorithm>
#include <array>
#include <chrono>
#include <csignal>
#include <cstdint>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <functional>
#include <memory>
#include <optional>
#include <stdexcept>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include <arpa/inet.h>
#include <poll.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <unistd.h>

#include "framework/base/descriptor.h"
#include "framework/base/range.h"
#include "framework/base/text.h"
#include "framework/comm/network/connect.h"
#include "framework/comm/network/secret.h"
#include "framework/engines/meeting_ports.h"
#include "framework/telemetry/failure_record.h"
#include "tests/catch.h"
#include "tests/support/ended.h"
#include "tests/support/free_port.h"
#include "tests/support/temporary_folder.h"
#include "tests/train/same_run.h"
#include "tests/train/train_in_fork.h"
#include "tests/train/train_program.h"

// Several launchers on the loopback: what needs no network of its own. tests/hosts.sh has more.

using namespace lockstep;
using namespace lockstep::testing;
using namespace std::chrono_literals;

namespace {

namespace fs = std::filesystem;

Flags small_job() {
  return Flags{"--config", config_file("fashion_mnist_mlp.yaml"), "--replicas", "3"} +
         set("model.hidden=[17] data.batch_size=8 trainer.steps=6 trainer.accumulate=2 "
             "trainer.clip_norm=0.5 parallel.zero_stage=2 parallel.timeout_s=20 "
             "schedule.name=constant");
}

// Runs the job on `hosts` launchers, each with its own folder for settings.
std::vector<Ended> on_hosts(const TemporaryFolder& folder, std::size_t hosts, const Flags& flags,
                            const std::vector<Flags>& more = {}) {
  const std::string rendezvous = str("127.0.0.1:", free_port());
  std::vector<std::unique_ptr<ChildProgram>> launchers;
  for (std::size_t host = 0; host < hosts; ++host) {
    Flags own =
        flags + Flags{"--nnodes", str(hosts), "--node-rank", str(host), "--rendezvous", rendezvous};
    if (host < more.size()) own = own + more[host];
    launchers.push_back(std::make_unique<ChildProgram>([&] {
      ::setenv("XDG_CONFIG_HOME", str(folder.path().string(), "/", host).c_str(), 1);
      return training(folder.path(), own)();
    }));
  }
  std::vector<Ended> ended;
  for (const auto& launcher : launchers) ended.push_back(launcher->wait());
  return ended;
}

// The same, by what Slurm tells tasks and no flags: so many on each host, of which those of one
// host follow each other in what is returned. They share a folder for settings, and the first
// starts last.
std::vector<Ended> in_slurm_step(const TemporaryFolder& folder, const std::vector<int>& tasks,
                                 const Flags& flags) {
  const auto tell = [](const char* name, const auto& value) {
    ::setenv(name, str(value).c_str(), 1);
  };
  const int all = sum_of(tasks, std::identity());
  const auto start = [&](int number, std::size_t host, int local) {
    return std::make_unique<ChildProgram>([&, number, host, local] {
      tell("XDG_CONFIG_HOME", folder.path().string());
      tell("SLURM_JOB_ID", ::getppid());  // a free port follows from it
      tell("SLURM_STEP_ID", 0);
      tell("SLURM_STEP_NUM_NODES", tasks.size());
      tell("SLURM_STEP_NUM_TASKS", all);
      tell("SLURM_STEP_NODELIST", str("127.0.0.1,other[2-", tasks.size(), "]"));
      tell("SLURM_STEP_TASKS_PER_NODE", join(tasks, ","));
      tell("SLURM_PROCID", number);
      tell("SLURM_NODEID", host);
      tell("SLURM_LOCALID", local);
      tell("SLURM_TASK_PID", ::getpid());
      tell("SLURM_RESTART_COUNT", 2);
      return training(folder.path(), flags)();
    });
  };
  std::vector<std::unique_ptr<ChildProgram>> programs;
  int number = all;
  for (std::size_t host = tasks.size(); host-- > 0;) {
    for (int local = tasks[host]; local-- > 0;) programs.push_back(start(--number, host, local));
  }
  std::ranges::reverse(programs);
  return mapped(programs, [](const auto& program) { return program->wait(); });
}

// Takes a port of the loopback, so that nobody can listen there.
Descriptor taken(std::uint16_t port) {
  Descriptor socket(::socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0));
  sockaddr_in address{};
  address.sin_family = AF_INET;
  address.sin_port = htons(port);
  address.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
  (void)::bind(socket.get(), reinterpret_cast<sockaddr*>(&address), sizeof address);
  return socket;
}

std::string secret_in(const TemporaryFolder& folder) {
  const fs::path file = folder.path() / "secret";
  std::ofstream(file) << std::string(64, '7') << '\n';
  ::chmod(file.c_str(), 0600);
  return file;
}

}  // namespace

TEST_CASE("a job of several launchers ends as on one, and goes on with another number of them") {
  const TemporaryFolder folder;
  must_train(folder.path(), small_job() + Flags{"--output", "alone"});
  const Flags job = small_job() + Flags{"--output", "run"};
  const Flags flags = job + Flags{"--secret-file", secret_in(folder)};
  const auto check = [&](const std::vector<Ended>& ended, int hosts) {
    for (const Ended& end : ended) require_status(end, 0);
    CHECK(result_of(folder.path() / "run").at("hosts") == hosts);
  };
  check(on_hosts(folder, 2, flags + set("trainer.steps=3")), 2);
  check(on_hosts(folder, 3, flags + Flags{"--resume", "auto", "--resume-with-changes"}), 3);
  CHECK(digest_of(folder.path() / "run") == digest_of(folder.path() / "alone"));
  // Only host 0 writes the run's own files: a line of the loss and one of the evaluation each time.
  CHECK(read_json_lines(folder.path() / "run/metrics.jsonl").size() == 4);

  // A number of threads that comes from the checkpoint is told where hosts would choose another.
  const std::int64_t other = std::thread::hardware_concurrency() + 1;
  rewrite_manifest(folder.path() / "run/checkpoints/latest", [&](storage::Manifest& manifest) {
    manifest.counts.at("threads_per_replica") = other;
  });
  const auto ports = engines::meeting_ports(static_cast<std::uint64_t>(::getpid()), 0);
  const Descriptor first_port = taken(ports[0]);
  // Shares of replicas follow tasks.
  const auto longer =
      in_slurm_step(folder, {1, 2}, job + set("trainer.steps=9") + Flags{"--resume", "auto"});
  check(longer, 2);
  CHECK_THAT(longer[0].err, ContainsSubstring("3 replicas on 2 hosts (1 + 2) as processes"));
  CHECK_THAT(longer[1].err,
             ContainsSubstring(str("host 1 of 2, by Slurm (job ", ::getpid(),
                                   ", step 0, restart 2), 2 tasks "
                                   "here; they meet at 127.0.0.1:",
                                   ports[0])) &&
                 ContainsSubstring("task 0 of 2 here: runs the program for all of them") &&
                 ContainsSubstring(str("has reached host 0 at 127.0.0.1:", ports[1])));
  CHECK(longer[2].out + longer[2].err == "");
  CHECK(
      result_of(folder.path() / "run").at("engine") ==
      nlohmann::json{{"name", "slurm"}, {"job", str(::getpid())}, {"step", "0"}, {"restarts", 2}});
  CHECK_THAT(longer[0].out,
             ContainsSubstring(str("  parallel.threads_per_replica stays ", other,
                                   ", as when the run began; this host would choose ")));
}

TEST_CASE("tasks of a step know what they are for, and end together where that does not add up") {
  const TemporaryFolder folder;
  const auto hosts = in_slurm_step(folder, {1, 2}, {"hosts"});
  const std::array places{
      str("\nhost 0 of 2, by Slurm (job ", ::getpid(), ", step 0, restart 2); "),
      str(", step 0, restart 2), 2 tasks here; "),
      std::string("\ntask 1 of 2 here: lends its cores to task 0")};
  for (std::size_t task = 0; task < places.size(); ++task) {
    require_status(hosts[task], 0);
    CHECK_THAT(hosts[task].out,
               ContainsSubstring("hosts of the step\n") && ContainsSubstring(places[task]));
  }
  const auto refused = in_slurm_step(folder, {1, 2}, small_job() + Flags{"--replicas", "4"});
  for (const Ended& end : refused) check_status(end, 2);
  for (const std::size_t first : {0, 1}) {
    CHECK_THAT(refused[first].err,
               ContainsSubstring("srun has started 3 tasks on 2 hosts (1 + 2), by which 4 replicas "
                                 "can't be shared: train --replicas 6 …, or srun "
                                 "--ntasks-per-node=1 -c CORES train …\n"));
  }
  CHECK(refused[2].err.empty());
  CHECK(fs::is_empty(folder.path()));
}

TEST_CASE("hosts refuses the flags that a run refuses, below what it has looked at") {
  const TemporaryFolder folder;
  const auto said = [&](const Flags& flags) {
    return train(folder.path(), Flags{"hosts"} + flags);
  };
  const Ended alone = said({});
  CHECK(alone.status == 0);
  CHECK(lines_of(alone.out).back() == "this host alone");
  check_status(said({"--nnodes", "2", "--node-rank", "0", "--rendezvous", "a:1", "--host-replicas",
                     "2", "--secret-file", "mine", "--meet-timeout", "5", "--interface", "lo"}),
               0);
  const Ended partial = said({"--nnodes", "2", "--node-rank", "0"});
  check_status(partial, 2);
  CHECK_THAT(partial.out, ContainsSubstring("--nnodes ") && !ContainsSubstring("alone"));
  CHECK_THAT(partial.err, ContainsSubstring("--nnodes needs --rendezvous HOST:PORT"));
}

TEST_CASE("a job of fewer replicas than hosts is refused with the number that it needs") {
  const TemporaryFolder folder;
  for (const Ended& end : on_hosts(folder, 2, small_job() + Flags{"--replicas", "1"})) {
    check_status(end, 2);
    CHECK_THAT(end.err, ContainsSubstring("parallel.replicas is 1, but 2 hosts need at least 2: "
                                          "--replicas 2\n"));
  }
}

TEST_CASE("a command runs in one task of a step, and those of its host end with its status") {
  const TemporaryFolder folder;
  const auto ended = in_slurm_step(folder, {2, 1}, {"inspect", "nothing"});
  for (const std::size_t task : {0, 1}) check_status(ended[task], 2);
  CHECK_THAT(ended[0].err, ContainsSubstring("nothing"));
  CHECK(ended[1].err.empty());
  check_status(ended[2], 0);
  CHECK(
      ended[2].err ==
      "lockstep: train inspect runs on host 0 alone, and this is host 1: it ends with status 0\n");
  for (const Ended& end :
       in_slurm_step(folder, {1, 1}, {"inspect", "nothing", "--engine", "none"})) {
    check_status(end, 2);
  }
  for (const char* const prints : {"list", "keys"}) {
    const auto once = in_slurm_step(folder, {2, 1}, {prints});
    for (const Ended& end : once) check_status(end, 0);
    CHECK(!once[0].out.empty());
    CHECK(once[1].out + once[2].out == "");
  }
}

TEST_CASE("a job that loses a replica on any host starts again on all") {
  const TemporaryFolder folder;
  const Flags flags = small_job() + set("trainer.steps=400 checkpoint.every=20");
  must_train(folder.path(), flags + Flags{"--output", "alone"});
  const std::string rendezvous = str("127.0.0.1:", free_port());
  const std::string secret = secret_in(folder);
  for (const std::size_t victim : {0, 1}) {
    const std::string run = str("run", victim);
    std::vector<std::unique_ptr<ChildProgram>> launchers;
    for (std::size_t host = 0; host < 2; ++host) {
      const Flags own{"--output",      run,       "--nnodes",       "2",
                      "--node-rank",   str(host), "--rendezvous",   rendezvous,
                      "--secret-file", secret,    "--max-restarts", "1"};
      launchers.push_back(std::make_unique<ChildProgram>(training(folder.path(), flags + own)));
    }
    const fs::path saved = folder.path() / run / "checkpoints/latest";
    REQUIRE(eventually([&] { return fs::exists(saved) || !launchers[0]->running(); }));
    REQUIRE(launchers[victim]->running());
    REQUIRE(::kill(children_of(launchers[victim]->pid()).at(0), SIGKILL) == 0);
    for (const auto& launcher : launchers) {
      const Ended end = launcher->wait();
      check_status(end, 0);
      CHECK_THAT(end.err, ContainsSubstring("starting again") && ContainsSubstring("killed by"));
    }
    CHECK(result_of(folder.path() / run).at("restarts") == 1);
    const auto records = mapped(failure_files(folder.path() / run), read_failure);
    REQUIRE(records.size() == 2);
    for (std::size_t host = 0; host < 2; ++host) {
      CHECK(records[host].host == static_cast<std::int64_t>(host));
      CHECK(records[host].starts_again);
      CHECK_THAT(records[host].verdict, ContainsSubstring(str("(host ", victim, ", pid ")));
    }
    CHECK(sum_of(records, [](const auto& record) { return record.replicas.size(); }) == 3);
    const Ended told = train(folder.path(), {"inspect", run});
    CHECK(told.status == 0);
    CHECK_THAT(told.out, ContainsSubstring("on 2 hosts, and was started again:\n") &&
                             ContainsSubstring("since then the run has gone on to its end\n"));
    CHECK(digest_of(folder.path() / run) == digest_of(folder.path() / "alone"));
  }
}

namespace {

// Whether a process has a handler for a signal.
bool catches(pid_t pid, int signal) {
  std::ifstream status(str("/proc/", pid, "/status"));
  for (std::string line; std::getline(status, line);) {
    if (line.starts_with("SigCgt:")) {
      return (std::stoull(line.substr(7), nullptr, 16) >> (signal - 1) & 1) != 0;
    }
  }
  return false;
}

// A job of two launchers that would not end by itself.
class LongJob {
 public:
  explicit LongJob(const TemporaryFolder& folder) : folder_(folder) {}
  void start(std::size_t host) {
    const Flags flags{"--config",      config_file("pmean_linear.yaml"),
                      "--replicas",    "4",
                      "--output",      "run",
                      "--nnodes",      "2",
                      "--node-rank",   str(host),
                      "--rendezvous",  rendezvous_,
                      "--secret-file", secret_};
    const Flags steps = set("trainer.steps=1000000000 trainer.log_every=1");
    launchers_[host] = std::make_unique<ChildProgram>(training(folder_.path(), flags + steps));
  }
  void wait_for_steps() {
    const bool trains = eventually([&] { return has_logged(folder_.path() / "run"); });
    if (!trains) throw std::runtime_error(host(0).err() + host(1).err());
  }
  ChildProgram& host(std::size_t host) { return *launchers_[host]; }
  // To host 0, as a launcher that has not yet said who it is.
  [[nodiscard]] std::unique_ptr<comm::Link> connect() const {
    return comm::connect(comm::HostAndPort::parse(rendezvous_), comm::Secret::read(secret_), 20s);
  }

 private:
  const TemporaryFolder& folder_;
  std::string rendezvous_ = str("127.0.0.1:", free_port());
  std::string secret_ = secret_in(folder_);
  std::array<std::unique_ptr<ChildProgram>, 2> launchers_;
};

}  // namespace

TEST_CASE("a signal that reaches all hosts at about one time ends the job after a checkpoint") {
  for (const auto& [signal, status] : {std::pair(SIGTERM, 143), std::pair(SIGINT, 130)}) {
    for (const int apart_ms : {0, 5, 20}) {
      for (const std::size_t first : {0, 1}) {
        INFO("signal " << signal << ", host " << first << " first, " << apart_ms << " ms apart");
        const TemporaryFolder folder;
        LongJob job(folder);
        for (const std::size_t host : {0, 1}) job.start(host);
        job.wait_for_steps();
        REQUIRE(::kill(job.host(first).pid(), signal) == 0);
        ::poll(nullptr, 0, apart_ms);
        REQUIRE(::kill(job.host(1 - first).pid(), signal) == 0);
        for (const std::size_t host : {0, 1}) {
          const Ended end = job.host(host).wait();
          check_status(end, status);
          CHECK(!end.by_signal);
        }
        CHECK(fs::exists(folder.path() / "run/checkpoints/latest/manifest.json"));
      }
    }
  }
}

TEST_CASE("a signal on one host while hosts meet ends the job on all") {
  for (const std::size_t stopped : {0, 1}) {
    const TemporaryFolder folder;
    LongJob job(folder);
    job.start(stopped);
    // Host 0 waits for others, another host for host 0.
    if (stopped == 0) {
      REQUIRE(eventually(
          [&] { return job.host(0).err().find("waits for the others") != std::string::npos; }));
    } else {
      REQUIRE(eventually([&] { return catches(job.host(1).pid(), SIGHUP); }));
    }
    REQUIRE(::kill(job.host(stopped).pid(), SIGHUP) == 0);
    const Ended end = job.host(stopped).wait();
    check_status(end, 129);
    CHECK(!end.by_signal);
    CHECK_THAT(end.err, ContainsSubstring("lockstep: error: stopped by SIGHUP"));
    CHECK(!fs::exists(folder.path() / "run"));
  }
}

TEST_CASE("a launcher that has not yet said who it is hears of a signal on host 0") {
  const TemporaryFolder folder;
  LongJob job(folder);
  job.start(0);
  const auto link = job.connect();
  REQUIRE(::kill(job.host(0).pid(), SIGTERM) == 0);
  std::optional<std::string> heard;
  CHECK(eventually([&] {
    link->progress();
    heard = link->receive();
    return heard || !link->is_open();
  }));
  REQUIRE(heard);
  CHECK_THAT(*heard, ContainsSubstring("stopped by SIGTERM before replicas started"));
  CHECK(job.host(0).wait().status == 143);
}

TEST_CASE("host 0 makes the secret, and others say where to copy it from") {
  const TemporaryFolder folder;
  const auto ended = on_hosts(folder, 2, small_job() + Flags{"--meet-timeout", "1"});
  const fs::path secret = folder.path() / "0/lockstep/secret";
  struct stat found {};
  REQUIRE(::stat(secret.c_str(), &found) == 0);
  CHECK((found.st_mode & 0777) == 0600);
  CHECK(ended[0].status == 3);
  CHECK_THAT(ended[0].err, ContainsSubstring("host 1 of 2 did not come"));
  CHECK(ended[1].status == 2);
  CHECK_THAT(ended[1].err, ContainsSubstring((folder.path() / "1/lockstep/secret").string()));
  CHECK_THAT(ended[1].err, ContainsSubstring("copy it from there"));
  CHECK(!fs::exists(folder.path() / "runs"));
}

TEST_CASE("a folder that host 0 can't claim ends the job on all hosts") {
  const TemporaryFolder folder;
  const Flags flags = small_job() + Flags{"--secret-file", secret_in(folder), "--output", "run"};
  fs::create_directory(folder.path() / "run");
  std::ofstream(folder.path() / "run/config.yaml") << "model: {name: linear}\n";
  std::ofstream(folder.path() / "run/result.json") << "{}\n";
  for (const Ended& end : on_hosts(folder, 2, flags)) {
    CHECK(end.status == 2);
    CHECK_THAT(end.err, ContainsSubstring("holds a run already"));
  }
}

TEST_CASE("launchers whose options differ name all that differs") {
  const TemporaryFolder folder;
  const Flags flags = small_job() + Flags{"--secret-file", secret_in(folder), "--output", "run"};
  const auto ended = on_hosts(folder, 2, flags, {{}, set("optimizer.lr=0.25 parallel.workers=2")});
  for (const Ended& end : ended) {
    CHECK(end.status == 2);
    CHECK_THAT(end.err, ContainsSubstring("host 1") && ContainsSubstring("optimizer.lr is 0.25") &&
                            ContainsSubstring("parallel.workers is 2"));
  }
  CHECK(!fs::exists(folder.path() / "run"));
}

TEST_CASE("shares of replicas that don't add up are named on all hosts") {
  const TemporaryFolder folder;
  const Flags flags = small_job() + Flags{"--secret-file", secret_in(folder), "--output", "run"};
  for (const Ended& end : on_hosts(folder, 2, flags, {{"--host-replicas", "1"}, {}})) {
    CHECK(end.status == 2);
    CHECK_THAT(end.err, ContainsSubstring("host 1 does not say how many replicas it runs"));
  }
  const std::vector<Flags> shares{{"--host-replicas", "1"}, {"--host-replicas", "1"}};
  for (const Ended& end : on_hosts(folder, 2, flags, shares)) {
    CHECK(end.status == 2);
    CHECK_THAT(end.err, ContainsSubstring("1 + 1 = 2 replicas, and the job has 3"));
  }
}
