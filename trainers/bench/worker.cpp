// The driver of bench starts this program with
//   serve MEASUREMENT WAY processes|threads REPLICAS FOLDER [HOST PORT ADDRESS...]
//       the replicas of a system (systems/tasks.h), which serve in the folder (systems/link.h).
//       What is last is for one of several hosts: its number, a port of the first one, all
//       addresses
//   facts [THREADS|MODEL...]         prints what it knows of the machine and of itself, the
//   memory's
//                                    bandwidth for so many threads, the models' parameters
//   keep float32|bfloat16 FLOPS      keeps the machine's peak for its user, and prints the file
//   hosts COUNT RATE_MBIT DELAY_MS CORES   makes hosts, prints what to put before a program so that
//   it
//                                    runs on each, and keeps them until its input ends
// It prints JSON.

#include <algorithm>
#include <cstddef>
#include <exception>
#include <filesystem>
#include <iostream>
#include <map>
#include <string>
#include <vector>

#include <nlohmann/json.hpp>

#include "framework/base/cores.h"
#include "framework/base/errors.h"
#include "framework/base/logging.h"
#include "framework/base/memory.h"
#include "framework/base/number_text.h"
#include "framework/base/process.h"
#include "framework/base/text.h"
#include "framework/collectives/axis_index.h"
#include "framework/comm/network/secret.h"
#include "framework/launch/launch.h"
#include "framework/maps/machine.h"
#include "framework/maps/pmap.h"
#include "trainers/bench/hosts/host_network.h"
#include "trainers/bench/machine.h"
#include "trainers/bench/systems/tasks.h"
#include "trainers/run/peak.h"

namespace lockstep::bench {
namespace {

using Json = nlohmann::ordered_json;
using Words = std::vector<std::string>;

std::unique_ptr<ReplicaTask> make_task(const std::string& measurement, const std::string& way) {
  if (measurement == "collectives") return make_collective(way);
  if (measurement == "training") return make_training(way);
  if (measurement == "checkpoint") return make_checkpoint(way);
  if (measurement == "vdot") return make_vdot(way);
  if (measurement == "vmap") return make_vmap();
  if (measurement == "replicated") return make_replicated(way);
  if (measurement == "recorder") return make_recorder(way);
  if (measurement == "peak") return make_peak(way);
  throw ValueError(str("bench_worker: unknown measurement '", measurement, "'"));
}

int serve_replicas(const Words& words) {
  const std::string& measurement = words.at(1);
  const std::string& way = words.at(2);
  const std::int64_t replicas = std::stoll(words.at(4));
  const std::filesystem::path folder = words.at(5);
  HostOptions hosts;
  if (words.size() > 6) {
    const Words addresses(words.begin() + 8, words.end());
    hosts = {.count = std::ssize(addresses),
             .rank = std::stoll(words[6]),
             .rendezvous = str(addresses.at(0), ":", words[7]),
             .secret_file = folder / "secret"};
    if (way == "tcp") {
      const auto task = make_plain_tcp(addresses, static_cast<std::size_t>(hosts.rank),
                                       static_cast<std::uint16_t>(std::stoi(words[7])));
      serve(*task, folder, hosts.rank);
      return 0;
    }
    (void)comm::Secret::read_or_make(hosts.secret_file);
  }
  set_quiet(true);
  const bool has_replicas =
      measurement == "collectives" || measurement == "training" || measurement == "checkpoint";
  if (!has_replicas) {  // a call of the task is all of them
    serve(*make_task(measurement, way), folder, 0);
    return 0;
  }
  const auto replica = [&] { serve(*make_task(measurement, way), folder, axis_index(kAxis)); };
  // One math thread each, as peers are told.
  if (way == "pmap") {
    pmap(replica, {.axis_name = kAxis, .axis_size = replicas, .threads_per_replica = 1})();
    return 0;
  }
  return launch(replica,
                {.replicas = replicas,
                 .mode = words[3] == "threads" ? LaunchMode::threads : LaunchMode::processes,
                 .backend = way == "gloo" ? Backend::gloo : Backend::automatic,
                 .axis_name = kAxis,
                 .threads_per_replica = 1,
                 .hosts = hosts});
}

Json facts(const Words& asked) {
  Json json{{"lockstep", LOCKSTEP_VERSION},         {"machine", machine_json()},
            {"libtorch", maps::libtorch_version()}, {"blas", maps::blas().name},
            {"free_bytes", available_memory()},     {"limits", Json::object()},
            {"parameters", Json::object()}};
  std::map<std::int64_t, Json> limits;  // by threads that can run at once
  for (const std::string& word : asked) {
    if (const auto threads = parse_number<std::int64_t>(word)) {
      Json& limit = limits[std::min(*threads, usable_cores())];
      if (limit.is_null()) limit = bandwidth_json(std::min(*threads, usable_cores()));
      json["limits"][word] = limit;
    } else {
      json["parameters"][word] = parameters_of(word);
    }
  }
  return json;
}

void keep_hosts(const Words& words) {
  const testing::HostNetwork network({.hosts = std::stoul(words.at(1)),
                                      .rate_mbit = std::stoi(words.at(2)),
                                      .cores = std::stod(words.at(4)),
                                      .delay_ms = std::stod(words.at(3))});
  Json hosts = Json::array();
  for (std::size_t host = 0; host < network.size(); ++host) {
    hosts.push_back({{"command", network.command(host, {}, std::filesystem::current_path())},
                     {"address", testing::HostNetwork::address(host)},
                     {"sent_bytes", network.sent_bytes(host)}});
  }
  std::cout << hosts << std::endl;
  std::cin.ignore();
}

int run(const Words& words) {
  const std::string verb = words.empty() ? "" : words[0];
  if (verb == "hosts") {  // before there are any threads
    keep_hosts(words);
    return 0;
  }
  prepare_process();
  if (verb == "serve") return serve_replicas(words);
  if (verb == "facts") {
    std::cout << facts({words.begin() + 1, words.end()}) << std::endl;
  } else if (verb == "keep") {
    const auto type = words.at(1) == "bfloat16" ? at::kBFloat16 : at::kFloat;
    std::cout << Json(keep_peak(type, std::stod(words.at(2))).string()) << std::endl;
  } else {
    throw ValueError("bench_worker is started by bench alone");
  }
  return 0;
}

}  // namespace
}  // namespace lockstep::bench

int main(int argc, char** argv) {
  try {
    return lockstep::bench::run({argv + 1, argv + argc});
  } catch (const std::exception& error) {
    lockstep::log_error(error.what());
    return lockstep::exit_status(error);
  }
}
