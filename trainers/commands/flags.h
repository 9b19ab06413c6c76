#pragma once

#include <cstdint>
#include <filesystem>
#include <optional>
#include <string>
#include <vector>

#include "framework/engines/whereabouts.h"
#include "framework/launch/launch.h"
#include "trainers/commands/command_line.h"
#include "trainers/config/config.h"

namespace lockstep {

/// What the command line of train asks for.
struct Flags {
  std::filesystem::path config;  ///< empty: that of the checkpoint or the run which --resume names
  std::filesystem::path output;  ///< empty: a new folder under runs/
  std::vector<keys::Override>
      overrides;       ///< --set, --replicas, --workers and --launch, in their order
  std::string resume;  ///< "auto", a checkpoint's folder, or empty
  bool resume_with_changes = false;
  std::int64_t max_restarts = 0;
  std::int64_t stop_after = 0;              ///< 0: at the run's end
  std::optional<engines::Engine> engine{};  ///< --engine
  engines::Whereabouts where{};             ///< as the environment and these flags say
  HostOptions hosts{};                      ///< of `where`, and what goes with it
  bool print_config = false;
  bool dry_run = false;
  bool quiet = false;
  std::optional<std::string> text;  ///< --help and the like: to be printed, and nothing else done
};

/// The command line of a training, which sets `flags`.
[[nodiscard]] CommandLine train_command_line(Flags& flags);

/// Throws ValueError for unknown flags, flags without their value, and more than 1000 flags that
/// set keys.
[[nodiscard]] Flags parse_flags(int argc, const char* const* argv);

/// Whether a word without a flag looks like a config: a file, or the name of one in YAML.
[[nodiscard]] bool looks_like_config(const std::string& word);

/// What stands in HostOptions for a number that is not given.
inline constexpr std::int64_t kNotGiven = -1;
/// Where this process is (in a worker that is this program started again: the launcher), by the
/// environment and by what of `given` is given.
[[nodiscard]] engines::Whereabouts whereabouts_of(const HostOptions& given,
                                                  std::optional<engines::Engine> engine);

/// Puts the host's place, by `where` and by what of it is given there already, into `hosts`.
/// ValueError where this process may not run, or lacks flags for a job of several hosts.
void take_place(const engines::Whereabouts& where, HostOptions& hosts);

/// Flags that several commands have. Before they are read, the numbers of `hosts` are kNotGiven,
/// and its time to meet is 0.
[[nodiscard]] std::vector<Flag> place_flags(HostOptions& hosts,
                                            std::optional<engines::Engine>& engine);
[[nodiscard]] Flag checkpoint_flag(std::optional<std::string>& checkpoint);
/// --format of what is text, or csv or json for programs.
[[nodiscard]] Flag table_format_flag(std::string& format);
/// Throws ValueError, naming the flag, if the folder of its new file is not there.
void check_folder_of(const std::string& flag, const std::filesystem::path& file);
/// --set of `program`, which takes keys of `sections` alone: the rest is a checkpoint's. Without
/// sections it takes all keys.
[[nodiscard]] Flag set_flag(std::vector<keys::Override>& overrides, const std::string& help,
                            const std::string& program = {},
                            const std::vector<std::string>& sections = {});
/// What holds without a flag, as help says it; "" says nothing.
struct ParallelDefaults {
  std::string replicas = {};
  std::string workers = "all";
  std::string launch = {};
};
/// Puts --replicas, --workers and --launch, for keys of `parallel`, behind the line's first flag.
void add_parallel_flags(CommandLine& line, std::vector<keys::Override>& overrides,
                        const ParallelDefaults& defaults = {});

/// The config of a command whose first flags are --config and --set. Without one its help was asked
/// for, and is printed.
[[nodiscard]] std::optional<Config> config_of(int argc, const char* const* argv, CommandLine line);

}  // namespace lockstep
