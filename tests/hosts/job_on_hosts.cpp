#include "tests/hosts/job_on_hosts.h"

#include <algorithm>
#include <fstream>
#include <random>
#include <stdexcept>

#include "framework/base/text.h"
#include "tests/catch.h"
#include "tests/support/ended.h"

namespace lockstep::testing {

namespace fs = std::filesystem;

JobOnHosts::JobOnHosts(const TestNetwork& network, const std::string& config, std::size_t replicas,
                       const Flags& flags)
    : network_(network), before_(network.size(), train_command({})), programs_(network.size()) {
  const std::string config_path = folder_.write("config.yaml", config);
  const std::string secret = new_secret("secret");
  for (std::size_t host = 0; host < network.size(); ++host) {
    fs::create_directory(folder(host));
    flags_.push_back(Flags{"--config", config_path, "--replicas", str(replicas), "--nnodes",
                           str(network.size()), "--node-rank", str(host), "--rendezvous",
                           str(TestNetwork::address(0), ":", kPort), "--secret-file", secret,
                           "--output", "run"} +
                     flags);
    place_.push_back(host);
  }
}

void JobOnHosts::replace(std::size_t host, const std::string& flag, const std::string& value) {
  Flags& flags = flags_.at(host);
  const auto found = std::find(flags.begin(), flags.end(), flag);
  if (found == flags.end()) throw std::logic_error("there is no flag " + flag);
  *(found + 1) = value;
}

void JobOnHosts::replace(const std::string& flag, const std::string& value) {
  for (std::size_t host = 0; host < flags_.size(); ++host) replace(host, flag, value);
}

void JobOnHosts::add(std::size_t host, const Flags& flags) {
  flags_.at(host) = flags_.at(host) + flags;
}

void JobOnHosts::run_beside(std::size_t host, std::size_t other) {
  place_.at(host) = other;
}

void JobOnHosts::run_as(std::size_t host, const fs::path& program) {
  before_.at(host).back() = program;
}

void JobOnHosts::preload(std::size_t host, const fs::path& library) {
  std::vector<std::string>& before = before_.at(host);
  before = {"/usr/bin/env", str("LD_PRELOAD=", library.string()), before.back()};
}

void JobOnHosts::start(std::size_t host) {
  std::vector<std::string> command = before_.at(host);
  command.insert(command.end(), flags_.at(host).begin(), flags_.at(host).end());
  programs_.at(host) =
      std::make_unique<ChildProgram>(network_.command(place_.at(host), command, folder(host)));
}

void JobOnHosts::start() {
  for (std::size_t host = 0; host < network_.size(); ++host) start(host);
}

std::size_t JobOnHosts::steps() const {
  std::ifstream file(output(0, "metrics.jsonl"));
  return static_cast<std::size_t>(std::count(std::istreambuf_iterator<char>(file), {}, '\n'));
}

void JobOnHosts::wait_for_steps(std::size_t steps) const {
  const auto one_ended = [&] {
    return std::any_of(programs_.begin(), programs_.end(),
                       [](const auto& program) { return program && !program->running(); });
  };
  const bool came = eventually([&] { return this->steps() >= steps || one_ended(); });
  if (!came || this->steps() < steps) {
    throw std::runtime_error(str("the job has not come to step ", steps, ":\n", all_output()));
  }
}

std::vector<Ended> JobOnHosts::wait(std::chrono::seconds deadline) {
  const bool all_ended = eventually(
      [&] {
        return std::none_of(programs_.begin(), programs_.end(),
                            [](const auto& program) { return program && program->running(); });
      },
      deadline);
  if (!all_ended) {
    throw std::runtime_error(
        str("the job still runs after ", deadline.count(), " s:\n", all_output()));
  }
  std::vector<Ended> ended(programs_.size());
  for (std::size_t host = 0; host < programs_.size(); ++host) {
    if (programs_[host]) ended[host] = programs_[host]->wait();
  }
  return ended;
}

std::vector<Ended> JobOnHosts::run() {
  start();
  return wait();
}

std::vector<pid_t> JobOnHosts::replicas(std::size_t host) const {
  return children_of(launcher(host));
}

fs::path JobOnHosts::output(std::size_t host, const std::string& file) const {
  return folder(host) / "run" / file;
}

std::string JobOnHosts::new_secret(const std::string& name) const {
  std::random_device random;
  std::string digits;
  while (digits.size() < 64) digits += "0123456789abcdef"[random() % 16];
  const std::string file = folder_.write(name, digits + "\n");
  fs::permissions(file, fs::perms::owner_read | fs::perms::owner_write);
  return file;
}

std::string JobOnHosts::all_output() const {
  std::string text;
  for (std::size_t host = 0; host < programs_.size(); ++host) {
    if (!programs_[host]) continue;
    text += str(TestNetwork::name(host), programs_[host]->running() ? ", which runs" : "", ":\n",
                programs_[host]->out(), programs_[host]->err());
  }
  return text;
}

fs::path JobOnHosts::folder(std::size_t host) const {
  return folder_.path() / TestNetwork::name(host);
}

Result result_in(const fs::path& output) {
  Result result{.digest = digest_of(output), .losses = {}};
  for (const nlohmann::json& line : read_json_lines(output / "metrics.jsonl")) {
    if (line.contains("loss")) result.losses.push_back(line["loss"]);
  }
  return result;
}

Result on_one_host(std::size_t replicas, const Flags& flags, const std::string& config) {
  const TemporaryFolder folder;
  const std::string file = folder.write("config.yaml", config);
  require_status(run_program(train_command(Flags{"--config", file, "--replicas", str(replicas),
                                                 "--output", "run"} +
                                           flags),
                             folder.path()),
                 0);
  return result_in(folder.path() / "run");
}

void check_all_well(JobOnHosts& job, const std::vector<Ended>& ended, const Result& expected) {
  INFO(job.all_output());
  for (const Ended& end : ended) REQUIRE(end.status == 0);
  CHECK(result_in(job.output(0, "")) == expected);
}

std::string last_line(const std::string& text) {
  const std::vector<std::string> lines = lines_of(text);
  return lines.empty() ? std::string() : lines.back();
}

}  // namespace lockstep::testing
