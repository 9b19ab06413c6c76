#include "trainers/bench/flags.h"

#include <algorithm>
#include <cstddef>
#include <functional>

#include <unistd.h>

#include "framework/base/errors.h"
#include "framework/base/number_text.h"
#include "framework/base/text.h"
#include "trainers/bench/reports/report.h"
#include "trainers/bench/reports/units.h"
#include "trainers/commands/command_line.h"

namespace lockstep::bench {
namespace {

using Words = std::vector<std::string>;

// The rules of values, one function a kind: each takes the text, or says what is wrong with it.

std::function<std::int64_t(const std::string&)> count_between(std::int64_t low, std::int64_t high) {
  return [low, high](const std::string& text) {
    const auto number = parse_number<std::int64_t>(text);
    require(number && *number >= low && *number <= high, "'", text, "' is no whole number from ",
            low, " to ", high);
    return *number;
  };
}

std::function<std::int64_t(const std::string&)> count_up_to(std::int64_t high) {
  return count_between(1, high);
}

std::function<std::string(const std::string&)> one_of(const Words& known) {
  return [known](const std::string& text) {
    if (std::ranges::count(known, text) > 0) return text;
    throw ValueError(
        str("'", text, "' is unknown", did_you_mean(text, known), "; there are ", join(known)));
  };
}

std::string any_word(const std::string& text) {
  return text;
}

std::int64_t float_size(const std::string& text) {
  constexpr std::int64_t kMost = std::int64_t{1} << 40;
  const auto bytes = parse_size(text);
  require(bytes && *bytes <= kMost, "'", text,
          "' is no size: expected a whole number of bytes from 1 to 1 TiB, such as 8, 64KiB, 1MiB "
          "or 1GiB");
  require(*bytes % 4 == 0, text, " is no whole number of float32 values, which take 4 bytes each");
  return *bytes;
}

std::int64_t parameter_count(const std::string& text) {
  std::string digits = text;
  std::int64_t unit = 1;
  for (const auto& [suffix, size] :
       {std::pair{'K', 1'000}, std::pair{'M', 1'000'000}, std::pair{'G', 1'000'000'000}}) {
    if (text.empty() || text.back() != suffix) continue;
    unit = size;
    digits.pop_back();
  }
  constexpr std::int64_t kMost = 1'000'000'000'000;
  try {
    return unit * count_up_to(kMost / unit)(digits);
  } catch (const ValueError&) {
    throw ValueError(str("'", text, "' is no number of parameters, such as 5000 or 100M"));
  }
}

std::filesystem::path output_folder(const std::string& text) {
  const std::filesystem::path folder = std::filesystem::absolute(text);
  if (!std::filesystem::is_directory(folder) || ::access(folder.c_str(), W_OK) != 0)
    throw ValueError(str("'", text, "' is no folder that can be written to"));
  return folder;
}

LaunchMode launch_mode(const std::string& text) {
  for (const LaunchMode mode : {LaunchMode::processes, LaunchMode::threads}) {
    if (text == name_of(mode)) return mode;
  }
  throw ValueError(str("'", text, "' is neither processes nor threads"));
}

std::int64_t stage(const std::string& text) {
  const std::vector<std::int64_t> stages{0, 1, 2, 3};
  for (const std::int64_t known : stages) {
    if (text == str(known)) return known;
  }
  throw ValueError(str("'", text, "' is no stage; there are ", join(stages)));
}

// Said before the measurement, not after it.
std::filesystem::path output_file(const std::string& text) {
  const std::filesystem::path file = text;
  if (text.empty() || std::filesystem::is_directory(file)) {
    throw ValueError(str("'", text, "' is no file's name"));
  }
  const std::string folder = std::filesystem::absolute(file).parent_path();
  if (::access(folder.c_str(), W_OK) != 0)
    throw ValueError(str("the folder ", folder, " cannot be written to"));
  return file;
}

// Calls `parse`, and adds the flag to what it finds wrong with the value.
template <typename Parse>
auto parse_value(const std::string& flag, const std::string& text, const Parse& parse) {
  try {
    return parse(text);
  } catch (const ValueError& error) {
    throw ValueError(str(flag, ": ", error.what()));
  }
}

// The parts of "a,b,c" without spaces around them.
Words parse_list(const std::string& flag, const std::string& text) {
  Words parts;
  for (std::size_t begin = 0; begin <= text.size();) {
    const std::size_t end = std::min(text.find(',', begin), text.size());
    std::string part = text.substr(begin, end - begin);
    part.erase(0, part.find_first_not_of(' '));
    part.erase(part.find_last_not_of(' ') + 1);
    if (part.empty()) throw ValueError(str(flag, " ", text, ": an entry of the list is empty"));
    parts.push_back(part);
    begin = end + 1;
  }
  return parts;
}

// How a flag's text becomes options.
using Take = std::function<void(Options& options, const std::string& flag, const std::string&)>;

template <typename T, typename Parse>
Take value(T Options::*member, Parse parse) {
  return [=](Options& options, const std::string& flag, const std::string& text) {
    options.*member = parse_value(flag, text, parse);
  };
}

// A list whose entries count once.
template <typename T, typename Parse>
Take list(std::vector<T> Options::*member, Parse parse) {
  return [=](Options& options, const std::string& flag, const std::string& text) {
    std::vector<T> values;
    for (const std::string& entry : parse_list(flag, text)) {
      const T parsed = parse_value(flag, entry, parse);
      if (std::ranges::count(values, parsed) == 0) values.push_back(parsed);
    }
    options.*member = values;
  };
}

const Words& all_measurements() {
  static const Words all{"collectives", "vdot", "training", "checkpoint", "parts"};
  return all;
}

const Words& all_parts() {
  static const Words all{"table", "replicated"};
  return all;
}

struct Flag {
  std::string name;
  Words measurements;  // that have it
  Take take;
};

const std::vector<Flag>& all_flags() {
  const Words& all = all_measurements();
  static const Words with_systems{"collectives", "vdot", "training", "checkpoint"};
  static const Words replicated{"collectives", "training", "checkpoint"};
  static const Words drawn{"collectives", "training"};
  static const std::vector<Flag> flags{
      {"--systems", with_systems, list(&Options::systems, any_word)},
      {"--repetitions", all, value(&Options::repetitions, count_up_to(10'000))},
      {"--python", all, list(&Options::pythons, any_word)},
      {"--json", all, value(&Options::json, output_file)},
      {"--operations", {"collectives"}, list(&Options::operations, parse_operation)},
      {"--sizes", {"collectives"}, list(&Options::sizes, float_size)},
      {"--measure", {"training"}, list(&Options::measured, one_of({"steps", "launches"}))},
      {"--measure", {"parts"}, list(&Options::measured, one_of(all_parts()))},
      {"--models", {"training"}, list(&Options::models, one_of({"mlp", "cnn", "resnet", "gpt"}))},
      {"--replicas", replicated, list(&Options::replicas, count_up_to(64))},
      {"--stages", {"training"}, list(&Options::stages, stage)},
      {"--data", {"training"}, list(&Options::data, one_of({"memory", kAugmented}))},
      {"--batch", {"training"}, value(&Options::batch, count_up_to(4096))},
      {"--launch", drawn, list(&Options::launch, launch_mode)},
      {"--hosts", drawn, value(&Options::hosts, count_up_to(16))},
      {"--rate-mbit", drawn, value(&Options::rate_mbit, count_between(0, 100'000))},
      {"--delay-ms", drawn, value(&Options::delay_ms, count_between(0, 1000))},
      {"--plot", drawn, value(&Options::plot, output_file)},
      {"--parameters", {"checkpoint"}, value(&Options::parameters, parameter_count)},
      {"--folders", {"checkpoint"}, list(&Options::folders, output_folder)},
      {"--columns", {"parts"}, value(&Options::columns, count_between(2, 1'000'000))},
  };
  return flags;
}

// The text of `--help` or `--version`, "" for anything else.
std::string text_for(const std::string& flag) {
  return flag == "--help"      ? help_text()
         : flag == "--version" ? "lockstep " LOCKSTEP_VERSION "\n"
                               : "";
}

// What depends on the measurement, and on the number of hosts.
void add_defaults(Options& options) {
  const std::int64_t hosts = options.hosts;
  const bool trains = options.measurement == "training";
  if (options.replicas.empty()) {
    if (options.measurement == "checkpoint") {
      options.replicas = {2};
    } else if (hosts > 1) {
      options.replicas = trains ? std::vector{2 * hosts} : std::vector{hosts, 2 * hosts};
    } else {
      options.replicas =
          trains ? std::vector<std::int64_t>{1, 2, 4} : std::vector<std::int64_t>{2, 4};
    }
  }
  if (!options.measured.empty()) return;
  options.measured = options.measurement == "parts" ? all_parts() : Words{"steps"};
  if (trains && hosts == 1) options.measured.emplace_back("launches");
}

// What several hosts can measure.
void check_hosts(const Options& options) {
  for (const std::int64_t replicas : options.replicas) {
    if (replicas % options.hosts == 0) continue;
    throw ValueError(
        str("--replicas: ", replicas, " cannot be spread evenly over ", options.hosts, " hosts"));
  }
  if (std::ranges::count(options.measured, "launches") > 0)
    throw ValueError("--measure: launches are those of one host");
  if (options.launch != std::vector{LaunchMode::processes})
    throw ValueError("--launch: on several hosts replicas are processes");
  if (!options.plot.empty()) throw ValueError("--plot: there are no pictures of several hosts");
}

}  // namespace

Options parse_flags(int argc, const char* const* argv) {
  Options options;
  options.measurement = argc > 1 ? argv[1] : "";
  options.text = text_for(options.measurement);
  if (!options.text.empty()) return options;
  if (std::ranges::count(all_measurements(), options.measurement) == 0) {
    const std::string what = options.measurement.empty()
                                 ? "a measurement is needed"
                                 : str("unknown measurement '", options.measurement, "'",
                                       did_you_mean(options.measurement, all_measurements()));
    throw ValueError(
        str(what, ": collectives, vdot, training, checkpoint or parts; see bench --help"));
  }

  std::vector<Flag> flags;
  FlagNames names{"bench", {}, {"--help", "--version"}};
  for (const Flag& flag : all_flags()) {
    if (std::ranges::count(flag.measurements, options.measurement) == 0) continue;
    flags.push_back(flag);
    names.with_value.push_back(flag.name);
  }
  (void)parse_command_line(argc - 1, argv + 1, names);
  for (int i = 2; i < argc; ++i) {
    if (!(options.text = text_for(argv[i])).empty()) return options;
  }
  for (int i = 2; i < argc; ++i) {
    const std::string argument = argv[i];
    const std::size_t equals = argument.find('=');
    const std::string name = argument.substr(0, equals);
    for (const Flag& flag : flags) {
      if (name != flag.name) continue;
      flag.take(options, name,
                equals == std::string::npos ? argv[++i] : argument.substr(equals + 1));
    }
  }
  add_defaults(options);
  if (options.hosts > 1) check_hosts(options);
  std::sort(options.sizes.begin(), options.sizes.end());
  if (options.measurement == "training")
    std::sort(options.replicas.begin(), options.replicas.end());
  return options;
}

}  // namespace lockstep::bench
