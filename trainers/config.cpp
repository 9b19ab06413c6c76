#include "trainers/config.h"

#include <algorithm>
#include <cctype>
#include <cerrno>
#include <climits>
#include <fstream>
#include <system_error>
#include <tuple>

#include "framework/base/errors.h"
#include "framework/base/text.h"
#include "trainers/config_optim.h"

namespace lockstep {
namespace {

const std::vector<SectionSchema>& config_schema() {
  static const std::vector<SectionSchema> kSchema{
      {"model", {"name", "hidden", "channels", "dense"}, {}},
      {"data", {"name", "root", "batch_size", "shuffle"}, {}},
      optimizer_schema(),
      schedule_schema(),
      {"parallel",
       {"replicas", "workers", "launch", "axis_name", "backend", "threads_per_replica", "timeout_s",
        "zero_stage", "bucket_mb", "overlap", "compression", "reduce_every_microbatch"},
       {}},
      {"trainer",
       {"epochs", "steps", "seed", "accumulate", "precision", "clip_norm", "clip_value",
        "non_finite", "check_every", "log_every", "eval_every"},
       {"epochs", "steps"}},
  };
  return kSchema;
}

constexpr std::size_t kLongestIdentifier = 100;

bool is_identifier(const std::string& text) {
  const auto is_part = [](unsigned char c) { return c < 128 && (std::isalnum(c) || c == '_'); };
  return !text.empty() && text.size() <= kLongestIdentifier &&
         std::all_of(text.begin(), text.end(), is_part) &&
         !std::isdigit(static_cast<unsigned char>(text[0]));
}

ModelOptions read_model(YamlDocument& document) {
  YamlSection section = document.section("model");
  ModelOptions options;
  options.name = section.choice("name", model_names());
  const auto width = from_to<std::int64_t>(1, 1'000'000);
  if (section.applies("hidden", {"mlp"}, options.name)) {
    options.hidden = section.integers("hidden", options.hidden, width);
  }
  if (section.applies("channels", {"cnn"}, options.name)) {
    options.channels = section.integers("channels", options.channels, width);
  }
  if (section.applies("dense", {"cnn"}, options.name)) {
    options.dense = section.integers("dense", options.dense, width);
  }
  return options;
}

void read_data(YamlDocument& document, Config& config) {
  YamlSection section = document.section("data");
  DataOptions& options = config.data;
  options.name = section.choice("name", data_names());
  if (section.applies("root", {"fashion_mnist"}, options.name)) {
    const Rule<std::string> is_path{
        str("a folder's path of 1 to ", PATH_MAX - 1, " bytes"),
        [](const std::string& text) { return !text.empty() && text.size() < PATH_MAX; }};
    options.root = section.string("root", options.root, is_path);
  }
  // The example's data are 4 samples a replica.
  const std::int64_t batch_size = options.name == "pmean_example" ? 4 : config.batch_size;
  // What a step takes, over all microbatches and replicas, fits in 63 bits.
  config.batch_size =
      section.integer("batch_size", batch_size, from_to<std::int64_t>(1, 1'000'000'000));
  config.shuffle = section.boolean("shuffle", config.shuffle);
}

ParallelOptions read_parallel(YamlDocument& document) {
  YamlSection section = document.section("parallel");
  ParallelOptions options;
  const Rule<std::string> identifier{
      str("1 to ", kLongestIdentifier, " letters, digits and _, and begin with no digit"),
      is_identifier};
  options.replicas = section.integer("replicas", options.replicas, from_to(1, 1024));
  options.workers = section.integer("workers", options.workers, from_to(0, 1024));
  if (options.workers > options.replicas && document.ok()) {
    section.problem("workers", str("must be at most parallel.replicas, which is ", options.replicas,
                                   ", or 0 for as many; is ", options.workers));
  }
  options.launch = section.choice("launch", {"processes", "threads"}, options.launch);
  options.axis_name = section.string("axis_name", options.axis_name, identifier);
  options.backend = section.choice("backend", {"auto", "gloo"}, options.backend);
  options.threads_per_replica =
      section.integer("threads_per_replica", options.threads_per_replica, from_to(0, 1024));
  // A millisecond at least, and within 64 bits in any unit of time.
  const Rule<double> timeout{"from 0.001 to 1000000",
                             [](double seconds) { return seconds >= 1e-3 && seconds <= 1e6; }};
  options.timeout_s = section.number("timeout_s", options.timeout_s, timeout);
  options.zero_stage = section.integer("zero_stage", options.zero_stage, from_to(0, 3));
  const Rule<double> bucket{"greater than 0 and at most 1000000",
                            [](double mb) { return mb > 0 && mb <= 1e6; }};
  options.bucket_mb = section.number("bucket_mb", options.bucket_mb, bucket);
  options.overlap = section.choice("overlap", {"auto", "on", "off"}, options.overlap);
  options.compression = section.choice("compression", {"none", "bf16"}, options.compression);
  options.reduce_every_microbatch =
      section.boolean("reduce_every_microbatch", options.reduce_every_microbatch);
  return options;
}

TrainerOptions read_trainer(YamlDocument& document) {
  YamlSection section = document.section("trainer");
  TrainerOptions options;
  const auto count = from_to<std::int64_t>(1, 1'000'000'000);
  if (section.has("steps")) {
    options.steps = section.integer<std::int64_t>("steps", 1, count);
    options.epochs.reset();
  } else {
    options.epochs = section.integer<std::int64_t>("epochs", 1, count);
  }
  options.seed = section.integer("seed", options.seed, at_least<std::uint64_t>(0));
  options.accumulate =
      section.integer("accumulate", options.accumulate, from_to<std::int64_t>(1, 1'000'000));
  options.precision = section.choice("precision", {"fp32", "bf16"}, options.precision);
  options.non_finite = section.choice("non_finite", {"stop", "skip"}, options.non_finite);
  options.check_every =
      section.integer("check_every", options.check_every, at_least<std::int64_t>(0));
  options.clip_norm = section.number_or_null("clip_norm", options.clip_norm, greater_than(0.0));
  options.clip_value = section.number_or_null("clip_value", options.clip_value, greater_than(0.0));
  options.log_every = section.integer("log_every", options.log_every, count);
  options.eval_every = section.integer("eval_every", options.eval_every, at_least<std::int64_t>(0));
  return options;
}

constexpr std::size_t kLongestKiB = 256;
constexpr std::size_t kLongestConfig = kLongestKiB << 10;

std::string read_text(const std::filesystem::path& file) {
  const auto fail = [&](const std::string& reason) {
    throw DataError(str("cannot read the config ", file.string(), ": ", reason));
  };
  std::error_code ignored;  // what cannot be looked at cannot be opened either
  if (std::filesystem::is_directory(file, ignored)) fail("it is a directory");
  errno = 0;
  std::ifstream in(file, std::ios::binary);
  if (!in) fail(std::generic_category().message(errno));
  // It may be a device or a pipe, which has any length.
  std::string text(kLongestConfig + 1, '\0');
  in.read(text.data(), static_cast<std::streamsize>(text.size()));
  if (in.bad()) fail(std::generic_category().message(errno));
  if (in) fail(str("it is longer than ", kLongestKiB, " KiB, more than any config"));
  text.resize(static_cast<std::size_t>(in.gcount()));
  return text;
}

}  // namespace

bool operator==(const Config& a, const Config& b) {
  const auto all = [](const Config& c) {
    return std::tie(c.model, c.data.name, c.data.root, c.batch_size, c.shuffle, c.optimizer,
                    c.schedule, c.parallel, c.trainer);
  };
  return all(a) == all(b);
}

Config parse_config(const std::string& text, const std::string& name,
                    const std::vector<Override>& overrides) {
  YamlDocument document(text, name, config_schema(), overrides);
  Config config;
  config.model = read_model(document);
  read_data(document, config);
  config.optimizer = read_optimizer(document, config.group_places);
  config.schedule = read_schedule(document, config.warmup_place);
  config.parallel = read_parallel(document);
  config.trainer = read_trainer(document);
  document.finish();
  return config;
}

Config load_config(const std::filesystem::path& file, const std::vector<Override>& overrides) {
  return parse_config(read_text(file), file.string(), overrides);
}

}  // namespace lockstep
