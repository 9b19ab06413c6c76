#include "trainers/commands/flags.h"

#include <algorithm>
#include <chrono>
#include <cstddef>
#include <functional>
#include <system_error>
#include <utility>

#include <unistd.h>

#include "framework/base/logging.h"
#include "framework/base/number_text.h"
#include "framework/base/other_words.h"
#include "framework/base/range.h"
#include "framework/base/text.h"
#include "framework/base/text_table.h"
#include "framework/comm/network/host_and_port.h"
#include "framework/engines/local_tasks.h"
#include "framework/engines/surroundings.h"
#include "framework/storage/checkpoint_folder.h"
#include "framework/telemetry/run_folder.h"
#include "trainers/commands/commands.h"
#include "trainers/run/resume.h"

namespace lockstep {
namespace {

constexpr std::size_t kMostOverrides = 1000;

constexpr const char* kSetHelp = "Sets a key of the config, again and again; wins over the file";

Flag config_flag(std::filesystem::path& config) {
  return {"--config", "FILE", "The config, in YAML; - is stdin", sets(config),
          [](const std::string& word, const std::string& /*next*/) {
            return looks_like_config(word) ? "--config " + word : "";
          }};
}

// For a word that is no flag: --epochs is the key trainer.epochs, --model model.name, and
// optimizer.lr=0.1, as Hydra takes it, lacks its --set. `is_taken`: of the keys that may be set.
std::string meant_by_set(const std::string& word, const std::string& next,
                         const std::function<bool(const std::string& key)>& is_taken) {
  const auto names = mapped(values_of(Config{}), [](const auto& item) { return item.first; });
  const std::size_t equals = word.find('=');
  const std::string value = equals == std::string::npos ? next : word.substr(equals + 1);
  if (value.empty()) return "";
  std::string wanted = folded(word.substr(0, equals));
  wanted.erase(0, wanted.find_first_not_of("_+"));
  std::vector<std::string> own = own_words(wanted.substr(wanted.find('.') + 1));
  own.insert(own.begin(), wanted);
  std::vector<std::string> ways;
  for (const std::string& key : filtered(names, is_taken)) {
    const std::string last = key.substr(key.find('.') + 1);
    const auto is_meant = [&](const std::string& each) {
      return each == key || each == last || each + ".name" == key;
    };
    if (std::ranges::any_of(own, is_meant)) ways.push_back(str("--set ", key, "=", value));
  }
  return join(ways, "' or '");
}

// The folder of configs: beside an installed program, or in the sources.
std::string configs_folder() {
  std::error_code error;
  const auto program = std::filesystem::read_symlink("/proc/self/exe", error);
  const auto installed = program.parent_path().parent_path() / "share/lockstep/configs";
  return std::filesystem::is_directory(installed, error) ? installed.string() : "configs";
}

std::string after_flags() {
  TextTable others;
  for (const Command& command : commands()) others.push_back({command.name, command.help});
  const std::string train = str("  ", program_name(), " --config ", configs_folder());
  return str("Other commands; each has its own --help:\n",
             table_text(others, "l", str("  ", program_name(), " ")),
             "Where an engine has started several tasks, one of them runs such a command; with\n"
             "--engine none each does.\n"
             "\nExit status: 0 done; 2 arguments, config or an input file; 3 a replica died, timed "
             "out or fell\nout of step; 1 any other error; 130 Ctrl-C; 129 SIGHUP; 143 SIGTERM, "
             "SIGUSR1, SIGUSR2, SIGXCPU.\n\nExamples:\n",
             train, "/pmean_linear.yaml --replicas 4\n",  //
             train, "/fashion_mnist_mlp.yaml --set optimizer.lr=0.0005 --output runs/slow\n", train,
             "/fashion_mnist_mlp.yaml --set checkpoint.every=100 \\\n",
             "      --output runs/slow --resume auto\n",  //
             train, "/fashion_mnist_mlp.yaml --nnodes 2 --node-rank 0 --rendezvous node0:29500\n");
}

auto integer(std::int64_t least, std::int64_t most) {
  return [least, most](const std::string& text) {
    const auto count = parse_number<std::int64_t>(text);
    require(count && *count >= least && *count <= most, "must be an integer from ", least, " to ",
            most, ", is ", cut(text, 200));
    return *count;
  };
}

void require_config(const std::filesystem::path& config, const std::string& program) {
  require(!config.empty(), "--config FILE is needed; see ", program, " --help");
}

auto not_empty(const char* otherwise) {
  return [otherwise](const std::string& text) {
    require(!text.empty(), otherwise);
    return text;
  };
}

void check_numbers(const HostOptions& hosts) {
  if (hosts.count == kNotGiven) return;
  require(hosts.count >= 1, "--nnodes must be at least 1");
  require(hosts.rank < hosts.count, "--node-rank is ", hosts.rank, " and --nnodes ", hosts.count,
          ": ranks are from 0 to ", hosts.count - 1);
}

void check_hosts(const HostOptions& hosts, bool has_engine) {
  check_numbers(hosts);
  require(hosts.replicas != 0, "--host-replicas must be at least 1");
  for (const auto& [flag, stands] : {std::pair("--rendezvous", !hosts.rendezvous.empty()),
                                     {"--host-replicas", hosts.replicas != kNotGiven},
                                     {"--secret-file", !hosts.secret_file.empty()},
                                     {"--meet-timeout", hosts.meet_timeout.count() > 0},
                                     {"--interface", !hosts.interface.empty()}}) {
    require(hosts.count > 1 || has_engine || !stands, flag, " needs --nnodes of at least 2");
  }
  if (hosts.count == 1) return;
  require(hosts.rank != kNotGiven, "--nnodes needs --node-rank I, this host's number");
  require(!hosts.rendezvous.empty(),
          "--nnodes needs --rendezvous HOST:PORT, an address of host 0 and a free port there");
  require(comm::HostAndPort::parse(hosts.rendezvous).port != 0, "--rendezvous is ",
          hosts.rendezvous, ": all hosts need to know the port");
}

auto whole_number() {
  return integer(0, 1'000'000);
}

}  // namespace

void take_place(const engines::Whereabouts& where, HostOptions& hosts) {
  check_numbers(hosts);
  require(where.refusal.empty(), where.refusal);
  engines::require_known_tasks(where, program_name());
  const bool is_told = where.engine != engines::Engine::none;
  require(is_told || hosts.count != kNotGiven || hosts.rank == kNotGiven,
          "--node-rank needs --nnodes H, the number of hosts");
  if (is_told) {
    hosts.count = where.hosts;
    hosts.rank = where.host;
    if (!where.rendezvous.empty()) {
      hosts.rendezvous = where.rendezvous[0];
      hosts.more_rendezvous.assign(where.rendezvous.begin() + 1, where.rendezvous.end());
    }
    hosts.job = engines::job_of(where);
    if (!where.secret_file.empty()) hosts.secret_file = where.secret_file;
    hosts.unknown_name_hint = where.unknown_name_hint;
  }
  if (hosts.count == kNotGiven) hosts.count = 1;
  check_hosts(hosts, is_told && where.engine != engines::Engine::own);
  if (hosts.meet_timeout.count() == 0) {
    hosts.meet_timeout = std::chrono::seconds(where.meet_timeout_s);
  }
  hosts.rank = std::max<std::int64_t>(hosts.rank, 0);
  hosts.replicas = std::max<std::int64_t>(hosts.replicas, 0);
}

bool looks_like_config(const std::string& word) {
  std::error_code missing;
  return word.ends_with(".yaml") || word.ends_with(".yml") ||
         std::filesystem::is_regular_file(word, missing);
}

engines::Whereabouts whereabouts_of(const HostOptions& given,
                                    std::optional<engines::Engine> engine) {
  engines::Surroundings here =
      engines::surroundings_of_process(is_relaunched() ? ::getppid() : ::getpid(), program_name());
  if (given.count != kNotGiven) here.flags["--nnodes"] = std::to_string(given.count);
  if (given.rank != kNotGiven) here.flags["--node-rank"] = std::to_string(given.rank);
  if (!given.rendezvous.empty()) here.flags["--rendezvous"] = given.rendezvous;
  if (!given.secret_file.empty()) here.flags["--secret-file"] = given.secret_file;
  return engines::find_whereabouts(here, engine);
}

std::vector<Flag> place_flags(HostOptions& hosts, std::optional<engines::Engine>& engine) {
  return {
      {"--nnodes", "H", "Number of hosts that run this job together",
       sets(hosts.count, whole_number())},
      {"--node-rank", "I", "This host's number, from 0 to H-1", sets(hosts.rank, whole_number())},
      {"--rendezvous", "HOST:PORT", "Where the hosts meet: host 0 listens there",
       sets(hosts.rendezvous, not_empty("is empty"))},
      {"--engine", "NAME",
       "Which engine's variables say what these flags don't: auto (those that are there; the "
       "default), none, slurm, mpi, torchrun or k8s",
       sets(engine, engines::parse_engine)},
      {"--host-replicas", "K",
       "How many of the replicas run on this host (default: an even share, or its tasks')",
       sets(hosts.replicas, whole_number())},
      {"--secret-file", "FILE",
       "The hosts' common secret (default: LOCKSTEP_SECRET_FILE, or "
       "~/.config/lockstep/secret, "
       "which host 0 makes)",
       sets(hosts.secret_file, not_empty("is empty"))},
      {"--meet-timeout", "S",
       "How many seconds the hosts may take to meet (default: 60; under Kubernetes 600)",
       sets(hosts.meet_timeout,
            [](const std::string& text) {
              return std::chrono::seconds(integer(1, 1'000'000)(text));
            })},
      {"--interface", "NAME",
       "Network interface for replicas' bytes (default: that of the rendezvous)",
       sets(hosts.interface, not_empty("is empty"))}};
}

Flag checkpoint_flag(std::optional<std::string>& checkpoint) {
  return {"--checkpoint", "DIR", "The checkpoint, such as runs/a/checkpoints/latest",
          sets(checkpoint), [](const std::string& word, const std::string& /*next*/) {
            std::error_code missing;
            return std::filesystem::is_directory(word, missing) ? "--checkpoint " + word : "";
          }};
}

Flag table_format_flag(std::string& format) {
  return {"--format", "FORMAT", "text (default), or csv or json for programs",
          sets(format, [](const std::string& name) {
            require(name == "text" || name == "csv" || name == "json", cut(name),
                    ": must be text, csv or json");
            return name;
          })};
}

void check_folder_of(const std::string& flag, const std::filesystem::path& file) {
  const std::filesystem::path folder = file.parent_path();
  std::error_code missing;
  require(folder.empty() || std::filesystem::is_directory(folder, missing), flag, " ",
          file.string(), ": there is no folder ", folder.string());
}

Flag set_flag(std::vector<keys::Override>& overrides, const std::string& help,
              const std::string& program, const std::vector<std::string>& sections) {
  const std::string first = sections.size() == 1 ? sections[0] : "dotted";
  const auto is_taken = [sections](const std::string& key) {
    return sections.empty() || std::ranges::any_of(sections, [&](const std::string& section) {
             return key.starts_with(section + ".");
           });
  };
  return {"--set", first + ".key=value", help,
          [=, &overrides](const Argument& argument) {
            const keys::Override& added = overrides.emplace_back(keys::parse_set(argument.value));
            require(is_taken(added.key), "--set ", cut(argument.value, 200), ": ", program,
                    " takes keys of ", join(sections, " and "), "; the model is the checkpoint's");
          },
          [is_taken](const std::string& word, const std::string& next) {
            return meant_by_set(word, next, is_taken);
          }};
}

void add_parallel_flags(CommandLine& line, std::vector<keys::Override>& overrides,
                        const ParallelDefaults& defaults) {
  const auto set = [&overrides](const Argument& argument) {
    overrides.push_back({"parallel." + argument.flag.substr(2), argument.value,
                         str(argument.flag, " ", cut(argument.value, 200))});
  };
  const auto row = [&](const char* name, const char* argument, const char* what,
                       const std::string& otherwise) -> Flag {
    const std::string key = str("parallel.", name + 2);
    return {name, argument,
            str(what, " (", key, otherwise.empty() ? "" : "; default: ", otherwise, ")"), set};
  };
  line.flags.insert(
      line.flags.begin() + 1,
      {row("--replicas", "N", "Number of replicas", defaults.replicas),
       row("--workers", "W", "How many of them run at once", defaults.workers),
       row("--launch", "HOW", "How replicas run, processes or threads", defaults.launch)});
}

CommandLine train_command_line(Flags& flags) {
  HostOptions& hosts = flags.hosts;
  CommandLine line{
      .program = program_name(),
      .usage = str("[run] --config FILE [flags]\n  ", program_name(),
                   " --output DIR --resume auto [flags]"),
      .what = "Trains a model on data-parallel replicas, as a YAML config says.",
      .flags =
          {config_flag(flags.config),
           set_flag(flags.overrides, kSetHelp),
           {"--output", "DIR",
            "Folder for results; one that holds a run needs --resume (default: a new one under "
            "runs/)",
            sets(flags.output, not_empty("the folder's name is empty"))},
           {"--resume", "auto|DIR",
            "Go on from the newest whole checkpoint in --output (auto; none: begin anew), or from "
            "that in DIR. Without --config, the checkpoint's is taken",
            sets(flags.resume, not_empty("expected auto or a checkpoint's folder"))},
           {"--resume-with-changes", "",
            "Go on even if keys have changed that change what is computed",
            sets(flags.resume_with_changes)},
           {"--stop-after", "N",
            "End after step N of the run, with a checkpoint; its schedule and length stay, and "
            "--resume goes on",
            sets(flags.stop_after, integer(1, 1'000'000'000))},
           {"--max-restarts", "K",
            "How many times at most to start again, from the newest checkpoint, after a replica is "
            "lost",
            sets(flags.max_restarts, whole_number())},
           {"--print-config", "", "Print the config with all its values and end",
            sets(flags.print_config)},
           {"--dry-run", "", "Print what memory the job will take, and end", sets(flags.dry_run)},
           {"--quiet", "", "Print errors and warnings only", sets(flags.quiet)},
           {"--version", "", "Print the version and end",
            [&flags](const Argument& /*argument*/) {
              flags.text = "lockstep " LOCKSTEP_VERSION "\n";
            }}},
      .more = after_flags()};
  const auto place = place_flags(hosts, flags.engine);
  line.flags.insert(std::ranges::find(line.flags, "--print-config", &Flag::name), place.begin(),
                    place.end());
  add_parallel_flags(line, flags.overrides);
  return line;
}

Flags parse_flags(int argc, const char* const* argv) {
  Flags flags;
  flags.hosts.count = flags.hosts.rank = flags.hosts.replicas = kNotGiven;
  flags.hosts.meet_timeout = {};
  const CommandLine line = train_command_line(flags);
  if (!parse_command_line(argc, argv, line)) flags.text = help_text(line);
  if (flags.text) return flags;
  require(flags.resume != "auto" || !flags.output.empty(),
          "--resume auto needs --output DIR, the folder of the run that goes on");
  if (flags.resume.empty()) require_config(flags.config, line.program);
  std::error_code missing;
  const bool is_found =
      flags.resume == "auto"
          ? holds_run(flags.output)
          : std::filesystem::exists(
                storage::CheckpointFolder::resolved(flags.resume) / storage::kManifestName,
                missing);
  require(!flags.config.empty() || is_found, "--config FILE is needed: --resume ", flags.resume,
          " finds no ", flags.resume == "auto" ? "run" : "checkpoint", " that has one; see ",
          line.program, " --help");
  flags.where = whereabouts_of(flags.hosts, flags.engine);
  take_place(flags.where, flags.hosts);
  require(flags.overrides.size() <= kMostOverrides, flags.overrides.size(),
          " flags set keys of the config; ", kMostOverrides, " may: write a config");
  return flags;
}

std::optional<Config> config_of(int argc, const char* const* argv, CommandLine line) {
  std::filesystem::path file;
  std::vector<keys::Override> overrides;
  if (line.usage.empty()) line.usage = "--config FILE [--set dotted.key=value]...";
  line.flags.insert(line.flags.begin(), {config_flag(file), set_flag(overrides, kSetHelp)});
  if (!parse_command_line(argc, argv, line)) {
    (void)print(help_text(line));
    return std::nullopt;
  }
  require_config(file, line.program);
  return load_config(file, overrides);
}

}  // namespace lockstep
