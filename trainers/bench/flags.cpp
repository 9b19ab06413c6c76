#include "trainers/bench/flags.h"

#include <functional>
#include <sstream>
#include <utility>

#include <unistd.h>

#include "framework/base/errors.h"
#include "framework/base/number_text.h"
#include "framework/base/text.h"
#include "framework/base/text_table.h"

namespace lockstep::bench {

// Each in a file of its own.
using Run = std::string(const Workplace& workplace, const Options& options);
Run run_collectives, run_vdot, run_training, run_checkpoint, run_parts, run_peak, run_recorder;

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

std::function<std::string(const std::string&)> one_of(const Words& known) {
  return [known](const std::string& text) {
    require(std::ranges::count(known, text) > 0, "'", text, "' is unknown",
            did_you_mean(text, known), "; there are ", join(known));
    return text;
  };
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
  constexpr std::int64_t kMost = 1'000'000'000'000;
  const auto count = parse_size(text + "B");  // the same units, of bytes: 100M is as 100MB
  require(count && *count <= kMost, "'", text,
          "' is no number of parameters, such as 5000 or 100M");
  return *count;
}

std::filesystem::path output_folder(const std::string& text) {
  const std::filesystem::path folder = std::filesystem::absolute(text);
  require(std::filesystem::is_directory(folder) && ::access(folder.c_str(), W_OK) == 0, "'", text,
          "' is no folder that can be written to");
  return folder;
}

LaunchMode launch_mode(const std::string& text) {
  for (const LaunchMode mode : {LaunchMode::processes, LaunchMode::threads}) {
    if (text == name_of(mode)) return mode;
  }
  throw ValueError(str("'", text, "' is neither processes nor threads"));
}

std::int64_t stage(const std::string& text) {
  const auto known = parse_number<std::int64_t>(text);
  require(known && *known >= 0 && *known <= 3, "'", text, "' is no stage; there are 0, 1, 2, 3");
  return *known;
}

// Said before the measurement, not after it.
std::filesystem::path output_file(const std::string& text) {
  const std::filesystem::path file = text;
  require(!text.empty() && !std::filesystem::is_directory(file), "'", text, "' is no file's name");
  const std::string folder = std::filesystem::absolute(file).parent_path();
  require(::access(folder.c_str(), W_OK) == 0, "the folder ", folder, " cannot be written to");
  return file;
}

std::filesystem::path picture_file(const std::string& text) {
  const std::filesystem::path file = output_file(text);
  require(file.extension() == ".svg" || file.extension() == ".png" || file.extension() == ".pdf",
          "'", text, "' does not end in .svg, .png or .pdf");
  return file;
}

// The parts of "a,b,c" without spaces around them.
Words parse_list(const Argument& list) {
  Words parts;
  std::istringstream text(list.value + ",");
  for (std::string part; std::getline(text, part, ',');) {
    part.erase(0, part.find_first_not_of(' '));
    part.erase(part.find_last_not_of(' ') + 1);
    require(!part.empty(), list.flag, " ", list.value, ": an entry of the list is empty");
    parts.push_back(part);
  }
  return parts;
}

// For a row: sets a list, whose entries count once.
template <typename T, typename Parse = std::identity>
auto sets_list(std::vector<T>& variable, Parse parse = {}) {
  return [&variable, parse](const Argument& argument) {
    std::vector<T> values;
    for (const std::string& entry : parse_list(argument)) {
      T value{};
      sets(value, parse)({argument.flag, entry});
      if (std::ranges::count(values, value) == 0) values.push_back(value);
    }
    variable = values;
  };
}

const Words& all_parts() {
  static const Words all{"table", "replicated"};
  return all;
}

constexpr const char* kVersion = "lockstep " LOCKSTEP_VERSION "\n";

std::string text_of_help() {
  TextTable commands;
  for (const Benchmark& benchmark : benchmarks()) {
    commands.push_back({benchmark.name + " [flags]", benchmark.help});
  }
  Options none;
  return str(
      "Measures Lockstep on this machine, beside other libraries and beside what the machine "
      "can do.\n\nUsage:\n",
      table_text(commands, "l", "  bench "), "  bench --help | --version\n\n",
      "Flags. A LIST is a,b,c. In brackets stand the commands that have a flag, if not all do.\n",
      flags_text(bench_flags(none)), "\n", help_on_measuring());
}

// What depends on the measurement, and on the number of hosts.
void add_defaults(Options& options) {
  const std::int64_t hosts = options.network.hosts;
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
    require(replicas % options.network.hosts == 0, "--replicas: ", replicas,
            " cannot be spread evenly over ", options.network.hosts, " hosts");
  }
  require(!options.measures("launches"), "--measure: launches are those of one host");
  require(options.launch == std::vector{LaunchMode::processes},
          "--launch: on several hosts replicas are processes");
}

}  // namespace

const std::vector<Benchmark>& benchmarks() {
  static const std::vector<Benchmark> all{
      {"collectives", "all-reduce, reduce-scatter and all-gather over sizes and replicas",
       run_collectives},
      {"vdot", "the dot product of two arrays of 10,000,000 x 3 over 8 replicas", run_vdot},
      {"training", "a training step of four models, and launch to first step", run_training},
      {"checkpoint", "saving and loading a training's state, on the disk and in memory",
       run_checkpoint},
      {"parts", "what single parts cost: the start on a wide table, shard_map's check", run_parts},
      {"peak", "FLOPs a second of large products, of which runs tell their part", run_peak},
      {"recorder", "what a replica's record of its time costs", run_recorder}};
  return all;
}

std::vector<Flag> bench_flags(Options& options) {
  const Words all;
  const Words with_systems{"collectives", "vdot", "training", "checkpoint"};
  const Words replicated{"collectives", "training", "checkpoint"};
  const Words spread{"collectives", "training"};
  const std::vector<std::pair<Words, Flag>> rows{
      {with_systems,
       {"--systems", "LIST", "The systems that are measured (default: all that this machine has)",
        sets_list(options.systems)}},
      {all,
       {"--repetitions", "N", "Samples a case (default: until 2 seconds have passed, from 5 to 25)",
        sets(options.repetitions, count_between(1, 10'000))}},
      {all,
       {"--python", "LIST",
        "Interpreters for c10d, jax, pandas and NumPy (default: python3). Debian's python3-torch "
        "has PyTorch 1.13, PyPI the current PyTorch and JAX; of several versions each is a system",
        sets_list(options.pythons)}},
      {all,
       {"--json", "FILE", "Write all samples, and what is known of the machine and the systems",
        sets(options.json, output_file)}},
      {all,
       {"--plot", "FILE",
        "Draw what was measured, with its quartiles: an SVG, PNG or PDF, as the name ends, by the "
        "first of --python's, python3 and /usr/bin/python3 that has matplotlib (Debian: "
        "python3-matplotlib)",
        sets(options.plot, picture_file)}},
      {{"collectives"},
       {"--operations", "LIST", "Operations: all_reduce, reduce_scatter, all_gather (default: all)",
        sets_list(options.operations, parse_operation)}},
      {{"collectives"},
       {"--sizes", "LIST",
        "Sizes of the whole buffer, such as 8, 64KiB, 1MiB (default: ten from 8 B to 256 MiB)",
        sets_list(options.sizes, float_size)}},
      {{"training", "parts"},
       {"--measure", "LIST",
        "What of a training: steps, launches, memory; which parts: table, replicated (default: all "
        "but memory)",
        sets_list(options.measured,
                  one_of(options.measurement == "parts" ? all_parts()
                                                        : Words{"steps", "launches", "memory"}))}},
      {{"training"},
       {"--steps", "N", "Steps over which --measure memory looks at memory (default: 2000)",
        sets(options.steps, count_between(2, 1'000'000))}},
      {{"training"},
       {"--models", "LIST",
        "Models: mlp, cnn: those of configs/fashion_mnist_*.yaml; resnet: of depth 8; gpt: 4 "
        "layers of 4 heads, width 128, on 128 bytes of text (default: all)",
        sets_list(options.models, one_of({"mlp", "cnn", "resnet", "gpt"}))}},
      {replicated,
       {"--replicas", "LIST",
        "Numbers of replicas (default: 2,4; of training 1,2,4; of checkpoint 2)",
        sets_list(options.replicas, count_between(1, 64))}},
      {{"training"},
       {"--stages", "LIST", "Stages of ZeRO (default: all)", sets_list(options.stages, stage)}},
      {{"training"},
       {"--data", "LIST",
        "Data: memory, augmented: images as they are, or cropped by 2 and mirrored at random, by "
        "Lockstep alone (default: memory)",
        sets_list(options.data, one_of({"memory", kAugmented}))}},
      {{"training"},
       {"--batch", "N", "Samples a replica (default: 64 images, 8 texts)",
        sets(options.batch, count_between(1, 4096))}},
      {spread,
       {"--launch", "LIST",
        "How Lockstep's own replicas run: processes, threads (default: processes)",
        sets_list(options.launch, launch_mode)}},
      {spread,
       {"--hosts", "N", "Spread each system's replicas over so many hosts: see \"Several hosts\"",
        sets(options.network.hosts, count_between(1, 16))}},
      {spread,
       {"--rate-mbit", "N",
        "Speed of each host's cable, either way; 0 for as fast as it goes (default: 1000)",
        sets(options.network.rate_mbit, count_between(0, 100'000))}},
      {spread,
       {"--delay-ms", "N", "Delay from any host to any other, one way (default: 0)",
        sets(options.network.delay_ms, count_between(0, 1000))}},
      {{"checkpoint"},
       {"--parameters", "N", "Parameters of the model, such as 5000 or 20M (default: 100M)",
        sets(options.parameters, parameter_count)}},
      {{"checkpoint"},
       {"--folders", "LIST", "Where to save (default: the temporary folder, and /dev/shm)",
        sets_list(options.folders, output_folder)}},
      {{"parts"},
       {"--columns", "N", "Columns of the table (default: 20000)",
        sets(options.columns, count_between(2, 1'000'000))}},
      {all,
       {"--version", "", "Print the version and end",
        [&options](const Argument& /*argument*/) { options.text = kVersion; }}}};
  const std::string& measurement = options.measurement;
  std::vector<Flag> flags;
  for (auto [measurements, flag] : rows) {
    const bool is_for_all = measurements.empty();
    if (measurement.empty() && !is_for_all) flag.help += str(" [", join(measurements), "]");
    if (measurement.empty() || is_for_all || std::ranges::count(measurements, measurement) > 0)
      flags.push_back(flag);
  }
  return flags;
}

Options parse_flags(int argc, const char* const* argv) {
  Options options;
  options.measurement = argc > 1 ? argv[1] : "";
  if (options.measurement == "--help") options.text = text_of_help();
  if (options.measurement == "--version") options.text = kVersion;
  if (!options.text.empty()) return options;
  Words names = mapped(benchmarks(), &Benchmark::name);
  if (std::ranges::count(names, options.measurement) == 0) {
    const std::string what = options.measurement.empty()
                                 ? "a measurement is needed"
                                 : str("unknown measurement '", options.measurement, "'",
                                       did_you_mean(options.measurement, names));
    const std::string last = names.back();
    names.pop_back();
    throw ValueError(str(what, ": ", join(names), " or ", last, "; see bench --help"));
  }
  const CommandLine line{.program = "bench", .flags = bench_flags(options)};
  if (!parse_command_line(argc - 1, argv + 1, line)) options.text = text_of_help();
  if (!options.text.empty()) return options;
  add_defaults(options);
  if (options.network.hosts > 1) check_hosts(options);
  std::sort(options.sizes.begin(), options.sizes.end());
  if (options.measurement == "training")
    std::sort(options.replicas.begin(), options.replicas.end());
  return options;
}

}  // namespace lockstep::bench
