#include <concepts>
#include <set>
#include <string>
#include <vector>

#include "framework/base/text.h"
#include "trainers/config.h"

namespace lockstep {
namespace {

std::string yaml(bool value) {
  return value ? "true" : "false";
}

std::string yaml(double value) {
  return yaml_number(value);
}

template <std::integral Integer>
std::string yaml(Integer value) {
  return std::to_string(value);
}

// Without quotes where no reader of YAML, of any version, takes it for anything but a string.
std::string yaml(const std::string& text) {
  static const std::set<std::string> kWords{"null", "true", "false", "yes", "no",
                                            "on",   "off",  "y",     "n"};
  constexpr const char* kSafe =
      "/.-_0123456789abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ";
  std::string lower = text;
  for (char& letter : lower) {
    if (letter >= 'A' && letter <= 'Z') letter = static_cast<char>(letter - 'A' + 'a');
  }
  const bool is_path = text.find('/') != std::string::npos && text[0] != '-';
  const bool is_word = !lower.empty() && (lower[0] == '_' || (lower[0] >= 'a' && lower[0] <= 'z'));
  const bool plain = (is_path || is_word) && kWords.count(lower) == 0 &&
                     text.find_first_not_of(kSafe) == std::string::npos;
  return plain ? text : yaml_quoted(text);
}

template <typename Range>
std::string yaml_list(const Range& values) {
  std::vector<std::string> texts;
  for (const auto& value : values) texts.push_back(yaml(value));
  return str("[", join(texts), "]");
}

// Collects the lines "  key: value" under a section's name, and those of lists under a key.
class Printer {
 public:
  void section(const std::string& name) { text_ += name + ":\n"; }
  void line(const std::string& key, const std::string& value) {
    text_ += "  " + key + ": " + value + "\n";
  }
  template <typename T>
  void key(const std::string& key, const T& value) {
    line(key, yaml(value));
  }
  void list(const std::string& key) { text_ += "  " + key + ":\n"; }
  void item(const std::string& value) { text_ += "    - " + value + "\n"; }
  [[nodiscard]] const std::string& text() const { return text_; }

 private:
  std::string text_;
};

void print_groups(const std::vector<ParameterGroup>& groups, Printer& out) {
  if (groups.empty()) return out.line("groups", "[]");
  out.list("groups");
  for (const ParameterGroup& group : groups) {
    std::string text = "{pattern: " + yaml(group.pattern);
    if (group.weight_decay) text += ", weight_decay: " + yaml(*group.weight_decay);
    out.item(text + ", lr_scale: " + yaml(group.lr_scale) + "}");
  }
}

void print_optimizer(const OptimizerOptions& options, Printer& out) {
  out.section("optimizer");
  out.key("name", options.name);
  out.key("lr", options.lr);
  if (options.name == "sgd") {
    out.key("momentum", options.momentum);
    out.key("nesterov", options.nesterov);
  } else {
    out.line("betas", yaml_list(options.betas));
    out.key("eps", options.eps);
  }
  out.key("weight_decay", options.weight_decay);
  print_groups(options.groups, out);
}

void print_schedule(const ScheduleOptions& options, Printer& out) {
  out.section("schedule");
  out.key("name", options.name);
  if (options.name != "one_cycle") out.key("warmup_steps", options.warmup_steps);
  if (options.name == "linear") out.key("end_factor", options.end_factor);
  if (options.name == "cosine") out.key("eta_min", options.eta_min);
  if (options.name == "step") {
    out.key("step_size", options.step_size);
    out.key("gamma", options.gamma);
  }
  if (options.name == "one_cycle") {
    out.key("pct_start", options.pct_start);
    out.key("div_factor", options.div_factor);
    out.key("final_div_factor", options.final_div_factor);
    out.key("anneal_strategy", options.anneal_strategy);
  }
}

}  // namespace

std::string to_yaml(const Config& config) {
  Printer out;
  out.section("model");
  out.key("name", config.model.name);
  if (config.model.name == "mlp") out.line("hidden", yaml_list(config.model.hidden));
  if (config.model.name == "cnn") {
    out.line("channels", yaml_list(config.model.channels));
    out.line("dense", yaml_list(config.model.dense));
  }

  out.section("data");
  out.key("name", config.data.name);
  if (config.data.name == "fashion_mnist") out.key("root", config.data.root);
  out.key("batch_size", config.batch_size);
  out.key("shuffle", config.shuffle);

  print_optimizer(config.optimizer, out);
  print_schedule(config.schedule, out);

  const ParallelOptions& parallel = config.parallel;
  out.section("parallel");
  out.key("replicas", parallel.replicas);
  out.key("workers", parallel.workers);
  out.key("launch", parallel.launch);
  out.key("axis_name", parallel.axis_name);
  out.key("backend", parallel.backend);
  out.key("threads_per_replica", parallel.threads_per_replica);
  out.key("timeout_s", parallel.timeout_s);
  out.key("zero_stage", parallel.zero_stage);
  out.key("bucket_mb", parallel.bucket_mb);
  out.key("overlap", parallel.overlap);
  out.key("compression", parallel.compression);
  out.key("reduce_every_microbatch", parallel.reduce_every_microbatch);

  const TrainerOptions& trainer = config.trainer;
  out.section("trainer");
  if (trainer.epochs) out.key("epochs", *trainer.epochs);
  if (trainer.steps) out.key("steps", *trainer.steps);
  out.key("seed", trainer.seed);
  out.key("accumulate", trainer.accumulate);
  out.key("precision", trainer.precision);
  out.key("non_finite", trainer.non_finite);
  out.key("check_every", trainer.check_every);
  out.line("clip_norm", trainer.clip_norm ? yaml(*trainer.clip_norm) : "null");
  out.line("clip_value", trainer.clip_value ? yaml(*trainer.clip_value) : "null");
  out.key("log_every", trainer.log_every);
  out.key("eval_every", trainer.eval_every);
  return out.text();
}

}  // namespace lockstep
