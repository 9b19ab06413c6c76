#include "trainers/bench/flags.h"

#include <algorithm>
#include <charconv>
#include <cstddef>
#include <functional>
#include <system_error>

#include <cxxopts.hpp>
#include <unistd.h>

#include "framework/base/errors.h"
#include "framework/base/text.h"
#include "trainers/bench/help.h"
#include "trainers/bench/training_loop.h"
#include "trainers/bench/units.h"
#include "trainers/command_line.h"

namespace lockstep::bench {
namespace {

constexpr const char* kDefaultSizes = "8,64,1KiB,8KiB,64KiB,256KiB,1MiB,8MiB,64MiB,256MiB";
constexpr std::int64_t kMostReplicas = 64;
constexpr std::int64_t kMostRepetitions = 10'000;
constexpr std::int64_t kLargestBatch = 4096;

using Texts = std::vector<std::string>;

// Values are taken as texts: what is wrong with one is said here, in the words of all other flags.
cxxopts::Options make_options(const Texts& names) {
  cxxopts::Options options("bench");
  for (const std::string& name : names)
    options.add_options()(name, "", cxxopts::value<std::string>());
  options.add_options()("help", "")("version", "");
  return options;
}

Texts flag_names(const std::string& command) {
  Texts names{"systems", "repetitions", "python", "json"};
  if (command == "collectives")
    names.insert(names.end(), {"operations", "sizes", "replicas", "launch", "plot"});
  if (command == "training") {
    names.insert(names.end(),
                 {"measure", "models", "replicas", "stages", "batch", "launch", "plot"});
  }
  return names;
}

// What `parse` finds wrong with the flag's value gains the flag.
template <typename Parse>
auto parse_value(const std::string& flag, const std::string& text, const Parse& parse) {
  try {
    return parse(text);
  } catch (const ValueError& error) {
    throw ValueError(str(flag, ": ", error.what()));
  }
}

// The values of a list, each once.
template <typename Parse>
auto parse_entries(const std::string& flag, const std::string& text, const Parse& parse) {
  std::vector<decltype(parse(text))> values;
  for (const std::string& entry : parse_list(text, flag)) {
    const auto value = parse_value(flag, entry, parse);
    if (std::find(values.begin(), values.end(), value) == values.end()) values.push_back(value);
  }
  return values;
}

std::int64_t parse_count(const std::string& text, std::int64_t high) {
  std::int64_t number = 0;
  const char* const end = text.data() + text.size();
  const auto [rest, error] = std::from_chars(text.data(), end, number);
  if (error != std::errc() || rest != end || number < 1 || number > high) {
    throw ValueError(str("'", text, "' is no whole number from 1 to ", high));
  }
  return number;
}

std::int64_t parse_float_size(const std::string& text) {
  const std::int64_t bytes = parse_size(text);
  if (bytes % 4 != 0)
    throw ValueError(str(text, " is no whole number of float32 values, which take 4 bytes each"));
  return bytes;
}

LaunchMode parse_launch(const std::string& text) {
  if (text == "processes") return LaunchMode::processes;
  if (text == "threads") return LaunchMode::threads;
  throw ValueError(str("'", text, "' is neither processes nor threads"));
}

// Said before the measurement, not after it.
std::filesystem::path parse_output(const std::string& text) {
  const std::filesystem::path file = text;
  if (text.empty() || std::filesystem::is_directory(file)) {
    throw ValueError(str("'", text, "' is no file's name"));
  }
  const std::string folder = std::filesystem::absolute(file).parent_path();
  if (::access(folder.c_str(), W_OK) != 0)
    throw ValueError(str("the folder ", folder, " cannot be written to"));
  return file;
}

using Value = std::function<void(const std::string& flag,
                                 const std::function<void(const std::string&)>& take)>;

void read_common(CommonOptions& options, const Value& value) {
  value("systems",
        [&](const std::string& text) { options.systems = parse_list(text, "--systems"); });
  value("python", [&](const std::string& text) { options.pythons = parse_list(text, "--python"); });
  value("json",
        [&](const std::string& text) { options.json = parse_value("--json", text, parse_output); });
  value("repetitions", [&](const std::string& text) {
    options.repetitions = parse_value("--repetitions", text, [](const std::string& count) {
      return parse_count(count, kMostRepetitions);
    });
  });
}

// What measurements on several replicas have, with a picture of it.
template <typename Options>
void read_replicas(Options& options, const Value& value) {
  value("replicas", [&](const std::string& text) {
    options.replicas = parse_entries("--replicas", text, [](const std::string& entry) {
      return parse_count(entry, kMostReplicas);
    });
  });
  value("launch", [&](const std::string& text) {
    options.launch = parse_entries("--launch", text, parse_launch);
  });
  value("plot",
        [&](const std::string& text) { options.plot = parse_value("--plot", text, parse_output); });
}

CollectivesOptions read_collectives(const Value& value) {
  CollectivesOptions options;
  read_common(options, value);
  options.sizes = parse_entries("--sizes", kDefaultSizes, parse_float_size);
  value("operations", [&](const std::string& text) {
    options.operations = parse_entries("--operations", text, parse_operation);
  });
  value("sizes", [&](const std::string& text) {
    options.sizes = parse_entries("--sizes", text, parse_float_size);
  });
  read_replicas(options, value);
  std::sort(options.sizes.begin(), options.sizes.end());
  return options;
}

// One of `known`.
std::string parse_word(const std::string& text, const Texts& known) {
  if (std::find(known.begin(), known.end(), text) != known.end()) return text;
  throw ValueError(
      str("'", text, "' is unknown", did_you_mean(text, known), "; there are ", join(known)));
}

std::int64_t parse_stage(const std::string& text) {
  for (const std::int64_t stage : training_stages()) {
    if (text == str(stage)) return stage;
  }
  throw ValueError(str("'", text, "' is no stage; there are ", join(training_stages())));
}

void read_training_cases(TrainingOptions& options, const Value& value) {
  value("measure", [&](const std::string& text) {
    const Texts wanted = parse_entries("--measure", text, [](const std::string& entry) {
      return parse_word(entry, {"steps", "launches"});
    });
    options.steps = std::find(wanted.begin(), wanted.end(), "steps") != wanted.end();
    options.launches = std::find(wanted.begin(), wanted.end(), "launches") != wanted.end();
  });
  value("models", [&](const std::string& text) {
    options.models = parse_entries("--models", text, [](const std::string& entry) {
      return parse_word(entry, {"mlp", "cnn"});
    });
  });
  options.stages = training_stages();
  value("stages", [&](const std::string& text) {
    options.stages = parse_entries("--stages", text, parse_stage);
  });
  value("batch", [&](const std::string& text) {
    options.batch = parse_value("--batch", text, [](const std::string& count) {
      return parse_count(count, kLargestBatch);
    });
  });
}

TrainingOptions read_training(const Value& value) {
  TrainingOptions options;
  read_common(options, value);
  read_training_cases(options, value);
  read_replicas(options, value);
  std::sort(options.replicas.begin(), options.replicas.end());
  return options;
}

VdotOptions read_vdot(const Value& value) {
  VdotOptions options;
  read_common(options, value);
  return options;
}

}  // namespace

Flags parse_flags(int argc, const char* const* argv) {
  const Texts commands{"collectives", "vdot", "training"};
  const std::string command = argc > 1 ? argv[1] : "";
  if (command == "--help") return {.text = help_text()};
  if (command == "--version") return {.text = "lockstep " LOCKSTEP_VERSION "\n"};
  if (std::find(commands.begin(), commands.end(), command) == commands.end()) {
    const std::string what = command.empty() ? "a measurement is needed"
                                             : str("unknown measurement '", command, "'",
                                                   did_you_mean(command, commands));
    throw ValueError(str(what, ": ", "collectives, vdot or training", "; see bench --help"));
  }
  const Texts names = flag_names(command);
  FlagNames known{"bench", {}, {"--help", "--version"}};
  for (const std::string& name : names) known.with_value.push_back("--" + name);
  check_command_line(argc - 1, argv + 1, known);
  cxxopts::Options options = make_options(names);
  try {
    const cxxopts::ParseResult parsed = options.parse(argc - 1, argv + 1);
    if (parsed.count("help") > 0) return {.text = help_text()};
    if (parsed.count("version") > 0) return {.text = "lockstep " LOCKSTEP_VERSION "\n"};
    const Value value = [&](const std::string& flag,
                            const std::function<void(const std::string&)>& take) {
      if (parsed.count(flag) > 0) take(parsed[flag].as<std::string>());
    };
    Flags flags;
    if (command == "collectives") flags.collectives = read_collectives(value);
    if (command == "vdot") flags.vdot = read_vdot(value);
    if (command == "training") flags.training = read_training(value);
    return flags;
  } catch (const cxxopts::exceptions::exception& error) {
    throw ValueError(str(error.what(), "; see bench --help"));
  }
}

}  // namespace lockstep::bench
