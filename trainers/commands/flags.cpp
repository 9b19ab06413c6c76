#include "trainers/commands/flags.h"

#include <cstddef>

// Values of --set may hold commas: a list option takes each as it is.
#define CXXOPTS_VECTOR_DELIMITER '\0'
#include <cxxopts.hpp>

#include "framework/base/errors.h"
#include "framework/base/number_text.h"
#include "framework/base/text.h"
#include "framework/comm/network/link.h"
#include "trainers/commands/command_line.h"

namespace lockstep {
namespace {

cxxopts::Options make_options() {
  cxxopts::Options options("train",
                           "Trains a model on data-parallel replicas, as a YAML config says.\n");
  options.custom_help("[run] --config FILE [flags]");
  options.add_options()                                                                           //
      ("config", "The config: see configs/", cxxopts::value<std::string>(), "FILE")               //
      ("replicas", "Number of replicas (parallel.replicas)", cxxopts::value<std::string>(), "N")  //
      ("workers", "How many of them run at once (parallel.workers; default: all)",
       cxxopts::value<std::string>(), "W")  //
      ("launch", "How replicas run, processes or threads (parallel.launch)",
       cxxopts::value<std::string>(), "HOW")  //
      ("set", "Sets a key of the config, again and again; wins over the file",
       cxxopts::value<std::vector<std::string>>(), "dotted.key=value")  //
      ("output",
       "Folder for results; one that holds a run needs --resume (default: a new one under runs/)",
       cxxopts::value<std::string>(), "DIR")  //
      ("resume",
       "Go on from the newest whole checkpoint in --output (auto; none: begin anew), or from that "
       "in DIR",
       cxxopts::value<std::string>(), "auto|DIR")  //
      ("resume-with-changes",
       "Go on even if keys have changed that change what is computed")  //
      ("max-restarts",
       "How many times at most to start again, from the newest checkpoint, after a replica is lost",
       cxxopts::value<std::string>(), "K")  //
      ("nnodes", "Number of hosts that run this job together", cxxopts::value<std::string>(),
       "H")                                                                                   //
      ("node-rank", "This host's number, from 0 to H-1", cxxopts::value<std::string>(), "I")  //
      ("rendezvous", "Where the hosts meet: host 0 listens there", cxxopts::value<std::string>(),
       "HOST:PORT")  //
      ("host-replicas", "How many of the replicas run on this host (default: an even share)",
       cxxopts::value<std::string>(), "K")  //
      ("secret-file",
       "The hosts' common secret (default: ~/.config/lockstep/secret, which host 0 makes)",
       cxxopts::value<std::string>(), "FILE")  //
      ("interface", "Network interface for replicas' bytes (default: that of the rendezvous)",
       cxxopts::value<std::string>(), "NAME")                           //
      ("print-config", "Print the config with all its values and end")  //
      ("help-config",
       "Print each key of the config with its default and what it is for, and end")  //
      ("dry-run", "Print what memory the job will take, and end")                    //
      ("quiet", "Print errors and warnings only")                                    //
      ("help", "Print this and end")                                                 //
      ("version", "Print the version and end");
  return options;
}

constexpr const char* kAfterHelp =
    "\nOther commands; each has its own --help:\n"
    "  train export      write a checkpoint's weights to a safetensors file\n"
    "  train inspect     print what a checkpoint holds, and compare its checksums\n"
    "  train eval        evaluate a checkpoint\n"
    "  train predict     write a checkpoint's predictions, a line a sample\n"
    "  train sample      continue a text, with a checkpoint that models bytes\n"
    "  train summary     print what the data are, a model's layers, parameters, FLOPs and memory\n"
    "  train check       read all files of all sets, and name those that are damaged\n"
    "  train config      print a config's keys, or those of one model, data set, …\n"
    "  train models      print the models that there are; likewise datasets, losses, optimizers,\n"
    "                    schedules and metrics\n"
    "\nExit status: 0 done; 2 arguments, config or an input file; 3 a replica died, timed out or "
    "fell\n"
    "out of step; 1 any other error; 130 Ctrl-C; 129 SIGHUP; 143 SIGTERM, SIGUSR1, SIGUSR2, "
    "SIGXCPU.\n"
    "\n"
    "Examples:\n"
    "  train --config configs/pmean_linear.yaml --replicas 4\n"
    "  train --config configs/fashion_mnist_mlp.yaml --set optimizer.lr=0.0005 --output "
    "runs/slow\n"
    "  train --config configs/fashion_mnist_mlp.yaml --set checkpoint.every=100 --output runs/slow "
    "--resume auto\n"
    "  train --config configs/fashion_mnist_mlp.yaml --nnodes 2 --node-rank 0 --rendezvous "
    "node0:29500\n";

constexpr std::size_t kMostOverrides = 1000;

const FlagNames kNames{"train",
                       {"--config", "--replicas", "--workers", "--launch", "--set", "--output",
                        "--resume", "--max-restarts", "--nnodes", "--node-rank", "--rendezvous",
                        "--host-replicas", "--secret-file", "--interface"},
                       {"--resume-with-changes", "--print-config", "--dry-run", "--quiet", "--help",
                        "--help-config", "--version"}};

std::int64_t parse_count(const std::string& flag, const std::string& text) {
  const auto count = parse_number<std::int64_t>(text);
  require(count && *count >= 0 && *count <= 1'000'000, flag,
          ": must be an integer from 0 to 1000000, is ", cut(text, 200));
  return *count;
}

HostOptions host_flags(const cxxopts::ParseResult& parsed) {
  const auto has = [&](const std::string& flag) { return parsed.count(flag) > 0; };
  const auto text = [&](const std::string& flag) {
    const auto value = has(flag) ? parsed[flag].as<std::string>() : std::string();
    require(!has(flag) || !value.empty(), "--", flag, " is empty");
    return value;
  };
  const auto count = [&](const std::string& flag, std::int64_t none) {
    return has(flag) ? parse_count("--" + flag, text(flag)) : none;
  };
  HostOptions hosts{.count = count("nnodes", 1),
                    .rank = count("node-rank", 0),
                    .rendezvous = text("rendezvous"),
                    .replicas = count("host-replicas", 0),
                    .secret_file = text("secret-file"),
                    .interface = text("interface")};
  require(hosts.count >= 1, "--nnodes must be at least 1");
  require(hosts.rank < hosts.count, "--node-rank is ", hosts.rank, " and --nnodes ", hosts.count,
          ": ranks are from 0 to ", hosts.count - 1);
  require(!has("host-replicas") || hosts.replicas > 0, "--host-replicas must be at least 1");
  for (const char* const flag : {"rendezvous", "host-replicas", "secret-file", "interface"}) {
    require(hosts.count > 1 || !has(flag), "--", flag, " needs --nnodes of at least 2");
  }
  require(hosts.count == 1 || has("node-rank"), "--nnodes needs --node-rank I, this host's number");
  require(hosts.count == 1 || has("rendezvous"),
          "--nnodes needs --rendezvous HOST:PORT, an address of host 0 and a free port there");
  if (hosts.count > 1) (void)comm::HostAndPort::parse(hosts.rendezvous);
  return hosts;
}

}  // namespace

Flags parse_flags(int argc, const char* const* argv) {
  (void)parse_command_line(argc, argv, kNames);
  cxxopts::Options options = make_options();
  Flags flags;
  try {
    const cxxopts::ParseResult parsed = options.parse(argc, argv);
    const auto has = [&](const char* flag) { return parsed.count(flag) > 0; };
    if (has("version")) flags.text = "lockstep " LOCKSTEP_VERSION "\n";
    if (has("help-config")) flags.text = config_help();
    if (has("help")) flags.text = options.help() + kAfterHelp;
    if (flags.text) return flags;
    if (!has("config")) throw ValueError("--config FILE is needed; see train --help");
    flags.config = parsed["config"].as<std::string>();
    if (has("output")) {
      flags.output = parsed["output"].as<std::string>();
      if (flags.output.empty()) throw ValueError("--output: the folder's name is empty");
    }
    if (has("resume")) {
      flags.resume = parsed["resume"].as<std::string>();
      if (flags.resume.empty())
        throw ValueError("--resume: expected auto or a checkpoint's folder");
      if (flags.resume == "auto" && flags.output.empty()) {
        throw ValueError("--resume auto needs --output DIR, the folder of the run that goes on");
      }
    }
    flags.resume_with_changes = has("resume-with-changes");
    if (has("max-restarts")) {
      flags.max_restarts = parse_count("--max-restarts", parsed["max-restarts"].as<std::string>());
    }
    flags.hosts = host_flags(parsed);
    flags.print_config = has("print-config");
    flags.dry_run = has("dry-run");
    flags.quiet = has("quiet");
    for (const auto& argument : parsed.arguments()) {
      const std::string& value = argument.value();
      if (argument.key() == "set") flags.overrides.push_back(keys::parse_set(value));
      for (const char* const key : {"replicas", "workers", "launch"}) {
        if (argument.key() != key) continue;
        flags.overrides.push_back(
            {str("parallel.", key), value, str("--", key, " ", cut(value, 200))});
      }
    }
    if (flags.overrides.size() > kMostOverrides) {
      throw ValueError(str(flags.overrides.size(), " flags set keys of the config; ",
                           kMostOverrides, " may: write a config"));
    }
  } catch (const cxxopts::exceptions::exception& error) {
    throw ValueError(str(error.what(), "; see train --help"));
  }
  return flags;
}

}  // namespace lockstep
