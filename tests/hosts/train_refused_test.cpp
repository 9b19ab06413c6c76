#include <filesystem>
#include <fstream>
#include <iostream>
#include <string>
#include <utility>
#include <vector>

#include "framework/base/text.h"
#include "tests/catch.h"
#include "tests/hosts/job_on_hosts.h"
#include "tests/hosts/sockets.h"
#include "tests/hosts/test_network.h"
#include "tests/support/ended.h"
#include "tests/support/files.h"
#include "tests/train/train_program.h"

using namespace lockstep;
using namespace lockstep::testing;

namespace {

namespace fs = std::filesystem;

// All hosts refuse the job, and say all of this.
void check_all_refuse(JobOnHosts& job, const Lines& said) {
  const std::vector<Ended> ended = job.run();
  INFO(job.all_output());
  for (const Ended& end : ended) {
    CHECK(end.status == 2);
    for (const std::string& text : said) CHECK_THAT(end.err, ContainsSubstring(text));
  }
}

}  // namespace

TEST_CASE("launchers with another secret don't meet, name its file, and tell nobody theirs",
          "[fault]") {
  const TestNetwork network({.hosts = 2});
  JobOnHosts job(network, kPerceptron, 2, {"--meet-timeout", "10"});
  const std::string other = job.new_secret("other");
  job.replace(1, "--secret-file", other);
  const std::vector<Ended> ended = job.run();
  INFO(job.all_output());
  check_status(ended[0], 3);
  CHECK_THAT(ended[0].err,
             ContainsSubstring("lockstep: warning: a launcher at 10.77.0.2 has another secret than "
                               "this host, which has that of /"));
  CHECK_THAT(last_line(ended[0].err), ContainsSubstring("; a launcher at 10.77.0.2 has another"));
  check_status(ended[1], 2);
  CHECK(ended[1].seconds < ended[0].seconds);
  CHECK_THAT(last_line(ended[1].err),
             ContainsSubstring("10.77.0.1:29500 has another secret than this host, which has that "
                               "of " +
                               other + ": all hosts need the same"));
  CHECK(job.all_output().find(lines_of(read_text(other)).at(0)) == std::string::npos);
  CHECK(network.left_behind() == Lines{});
}

TEST_CASE("a host that does not come ends those that wait", "[fault]") {
  const TestNetwork network({.hosts = 3});
  JobOnHosts job(network, kPerceptron, 3, {"--meet-timeout", "3"});
  job.start(0);
  job.start(1);
  const std::vector<Ended> ended = job.wait();
  INFO(job.all_output());
  for (const std::size_t host : {0, 1}) {
    CHECK(ended[host].status == 3);
    CHECK_THAT(ended[host].err, ContainsSubstring("host 2"));
  }
  CHECK(network.left_behind() == Lines{});
}

TEST_CASE("nobody comes to a host 0 that is not there", "[fault]") {
  const TestNetwork network({.hosts = 2});
  JobOnHosts job(network, kPerceptron, 2, {"--meet-timeout", "2"});
  job.start(1);
  const std::vector<Ended> ended = job.wait();
  INFO(job.all_output());
  CHECK(ended[1].status == 3);
  CHECK_THAT(ended[1].err, ContainsSubstring(TestNetwork::address(0)));
}

TEST_CASE("two launchers of one node rank are refused", "[fault]") {
  const TestNetwork network({.hosts = 3});
  JobOnHosts job(network, kPerceptron, 3, {"--meet-timeout", "3"});
  job.replace(2, "--node-rank", "1");
  const std::vector<Ended> ended = job.run();
  INFO(job.all_output());
  for (const Ended& end : ended) CHECK(end.status != 0);
  CHECK_THAT(ended[0].err, ContainsSubstring("node rank 1"));
  CHECK_THAT(ended[0].err, ContainsSubstring(TestNetwork::address(1)));
  CHECK_THAT(ended[0].err, ContainsSubstring(TestNetwork::address(2)));
  CHECK(network.left_behind() == Lines{});
}

TEST_CASE("launchers with different configs are refused, and told in what they differ", "[fault]") {
  const TestNetwork network({.hosts = 2});
  const std::vector<std::pair<Flags, std::string>> differences{
      {set("trainer.seed=1"), "trainer.seed"},
      {set("model.hidden=[33,9]"), "model.hidden"},
  };
  for (const auto& [flags, key] : differences) {
    JobOnHosts job(network, kPerceptron, 2);
    job.add(1, flags);
    check_all_refuse(job, {key});
    CHECK(network.left_behind() == Lines{});
  }
  for (const std::string flag : {"--replicas", "--nnodes"}) {
    JobOnHosts job(network, kPerceptron, 3);
    job.replace(1, flag, flag == "--nnodes" ? "3" : "4");
    check_all_refuse(job, {});
    CHECK(network.left_behind() == Lines{});
  }
}

TEST_CASE("launchers with other data are refused, and told in what they differ", "[fault]") {
  const TestNetwork network({.hosts = 2});
  const TemporaryFolder folder;
  const fs::path root = "/usr/share/datasets/fashion-mnist";
  for (const std::string what : {"images-idx3-ubyte.gz", "labels-idx1-ubyte.gz"}) {
    fs::create_symlink(root / ("t10k-" + what), folder.path() / ("t10k-" + what));
    fs::create_symlink(root / ("t10k-" + what), folder.path() / ("train-" + what));
  }
  JobOnHosts job(network, kPerceptron, 2);
  job.add(1, set("data.root=" + folder.path().string()));
  check_all_refuse(job, {"the training data's checksum"});
  CHECK_THAT(job.all_output(), !ContainsSubstring("the test data's checksum"));
  CHECK(network.left_behind() == Lines{});
}

TEST_CASE("a rendezvous that can't be is told after 2 s, and an error when hosts should have met",
          "[fault]") {
  const TestNetwork network({.hosts = 2});
  const auto stranger = run_on(network, 0, [] {
    const Descriptor listening = new_tcp_socket();
    listen_at(listening, JobOnHosts::kPort);
    std::cout << "listening\n" << std::flush;
    while (true) send_all(accept_one(listening), "220 I am no launcher\r\n");
    return 0;
  });
  REQUIRE(eventually([&] { return !stranger->out().empty() || !stranger->running(); }));

  JobOnHosts in_use(network, kPerceptron, 2, {"--meet-timeout", "3"});
  std::vector<Ended> ended = in_use.run();
  INFO(in_use.all_output());
  CHECK(ended[0].status != 0);
  CHECK_THAT(ended[0].err,
             ContainsSubstring("host 0 of 2 waits, for 3 s at most (--meet-timeout): cannot listen "
                               "on 10.77.0.1:29500: Address already in use\n"));
  CHECK_THAT(last_line(ended[0].err), ContainsSubstring("Address already in use, for 3000 ms"));
  CHECK(ended[1].status != 0);
  CHECK_THAT(ended[1].err,
             ContainsSubstring("host 1 of 2 waits, for 3 s at most (--meet-timeout): host 0 is not "
                               "yet at 10.77.0.1:29500: 10.77.0.1:29500 is no Lockstep launcher"));

  JobOnHosts nowhere(network, kPerceptron, 2, {"--meet-timeout", "3"});
  nowhere.replace("--rendezvous", "nowhere.invalid:29501");
  ended = nowhere.run();
  INFO(nowhere.all_output());
  for (const Ended& end : ended) {
    CHECK(end.status != 0);
    CHECK_THAT(end.err, ContainsSubstring("nowhere.invalid"));
    CHECK(end.seconds < 30);
  }
}

TEST_CASE("flags that can't be are refused before anybody is met") {
  const TestNetwork network({.hosts = 2});
  struct Mistake {
    std::string flag, value, said;
  };
  const std::vector<Mistake> mistakes{
      {"--node-rank", "2", "--node-rank"},
      {"--node-rank", "-1", "--node-rank"},
      {"--nnodes", "0", "--nnodes"},
      {"--replicas", "1", "replica"},  // fewer than hosts
      {"--rendezvous", "10.77.0.1", "10.77.0.1"},
      {"--rendezvous", "10.77.0.1:70000", "70000"},
      {"--secret-file", "/nowhere/secret", "/nowhere/secret"},
      {"--interface", "eth7", "eth7"},
      {"--launch", "threads", "threads"},
      {"--host-replicas", "0", "--host-replicas"},
      {"--host-replicas", "3", "--host-replicas"},
  };
  for (const auto& [flag, value, said] : mistakes) {
    INFO(flag << " " << value);
    JobOnHosts job(network, kPerceptron, 2,
                   {"--interface", "eth0", "--launch", "processes", "--host-replicas", "1"});
    job.replace(0, flag, value);
    job.start(0);
    const std::vector<Ended> ended = job.wait();
    check_status(ended[0], 2);
    CHECK(ended[0].seconds < 5);
    CHECK_THAT(ended[0].err, ContainsSubstring(said));
    CHECK(ended[0].err.find("no such option") == std::string::npos);
  }
}

TEST_CASE("checkpoints need a folder that all hosts share", "[fault]") {
  const TestNetwork network({.hosts = 2});
  JobOnHosts apart(network, kPerceptron, 2);
  apart.replace("--output", "/dev/shm/run");
  check_all_refuse(apart, {"/dev/shm/run", "all hosts share"});
  JobOnHosts without(network, kPerceptron, 2, set("checkpoint=none"));
  without.replace("--output", "/dev/shm/other");
  for (const Ended& end : without.run()) CHECK(end.status == 0);
}

TEST_CASE("a host with another program is refused", "[fault]") {
  const TestNetwork network({.hosts = 2});
  const TemporaryFolder folder;
  const fs::path other = folder.path() / "train";
  fs::copy_file(train_command({}).at(0), other);
  std::ofstream(other, std::ios::app) << "another build";
  JobOnHosts job(network, kPerceptron, 2);
  job.run_as(1, other);
  check_all_refuse(job, {"the program's checksum is "});
  JobOnHosts mixed(network, kPerceptron, 2, set("parallel.allow_mixed=true"));
  mixed.run_as(1, other);
  check_all_well(mixed, mixed.run(), on_one_host(2));
}
