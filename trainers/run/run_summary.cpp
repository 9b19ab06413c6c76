#include "trainers/run/run_summary.h"

#include <algorithm>
#include <cstdint>
#include <fstream>
#include <map>
#include <memory>
#include <optional>
#include <sstream>
#include <string_view>
#include <system_error>
#include <type_traits>
#include <variant>

#include "framework/base/errors.h"
#include "framework/base/number_text.h"
#include "framework/base/text.h"
#include "framework/data/data.h"
#include "framework/keys/key_table.h"
#include "framework/keys/yaml_tree.h"
#include "framework/telemetry/event_file.h"
#include "trainers/run/evaluations.h"
#include "trainers/run/resume.h"

namespace fs = std::filesystem;

namespace lockstep {
namespace {

const std::string kConfigTag = "config";

// TensorBoard shows tags of one beginning together: a figure of all sets is one group. "" for what
// another field says, too, and for what would be two curves a replica.
std::string tag_of(const std::string& field) {
  if (field == "loss") return "loss/train";
  if (field.starts_with(kEvalFigures)) return "";
  if (field == "replica_own_s" || field == "replica_waiting_s") return "";
  for (const std::string& set : {kTestBest, kTestSet, kValidationSet}) {
    if (field.starts_with(set + "_")) return field.substr(set.size() + 1) + "/" + set;
  }
  return "train/" + field;
}

// A key's value, which stands there as YAML. Lists are texts, as in TensorBoard's own table.
HparamValue hparam_of(const std::string& yaml) {
  keys::YamlProblems problems;
  const auto node = keys::parse_yaml(yaml, {}, problems);
  if (!node || node->kind != keys::YamlNode::Kind::scalar) return yaml;
  const std::string& text = node->text;
  if (node->quoted) return text;
  if (text == "true" || text == "false") return text == "true";
  if (const auto integer = parse_number<std::int64_t>(text)) return *integer;
  if (const auto number = parse_number<double>(text)) return *number;
  return text;
}

// Of all keys that apply but those that no figure depends on: TensorBoard's table of runs begins
// with the keys that differ, and then goes by their names.
std::map<std::string, HparamValue> hparams_of(Config config) {
  std::map<std::string, HparamValue> hparams;
  const std::map<std::string, std::string> values = values_of(config);
  for (const std::string& key : keys::keys_of_which(
           config_table(config), [](const auto&, bool applies) { return applies; })) {
    if (key.starts_with("checkpoint.") || key.starts_with("telemetry.")) continue;
    const std::string& yaml = values.at(key);
    if (!yaml.empty() && yaml != "null") hparams[key] = hparam_of(yaml);
  }
  return hparams;
}

// As Markdown, which shows lines behind four blanks as they are.
std::string shown_as_it_is(const std::string& text) {
  std::istringstream lines(text);
  std::string shown;
  for (std::string line; std::getline(lines, line);) shown += "    " + line + "\n";
  return shown;
}

// Returns true if a run has begun the event file, and no other writer: it shows its config at once.
bool is_of_run(const fs::path& file) {
  std::string begin(512, '\0');
  std::error_code error;
  if (!fs::is_regular_file(fs::symlink_status(file, error))) return false;
  std::ifstream(file).read(begin.data(), static_cast<std::streamsize>(begin.size()));
  return begin.find(kConfigTag + "/text_summary") != std::string::npos;
}

}  // namespace

RunSummary::RunSummary(const std::filesystem::path& folder, const Config& config,
                       std::int64_t first_step)
    : config_(config), writer_(folder, {.purge_step = first_step + 1, .warns = true}) {
  writer_.add_text(kConfigTag, shown_as_it_is(to_yaml(config)), first_step + 1);
}

void RunSummary::add(std::int64_t step,
                     const std::vector<std::pair<std::string, MetricValue>>& line) {
  // Figures of the best step stand at that step.
  const auto best =
      std::ranges::find(line, "best_step", [](const auto& each) { return each.first; });
  if (best != line.end()) step = std::get<std::int64_t>(best->second);
  const bool is_logged_step =
      std::ranges::any_of(line, [](const auto& each) { return each.first == "loss"; });
  for (const auto& [field, value] : line) {
    const bool is_place = field == "elapsed_s" || field == "samples";
    const std::string tag = tag_of(field);
    // Each has its step and the time beside it.
    if (field == "step" || field == "time" || tag.empty() || (is_place && !is_logged_step))
      continue;
    std::visit(
        [&](const auto& held) {
          if constexpr (std::is_arithmetic_v<std::decay_t<decltype(held)>>) {
            writer_.add_scalar(tag, static_cast<double>(held), step);
          } else if constexpr (std::is_same_v<std::decay_t<decltype(held)>,
                                              std::map<std::string, double>>) {
            for (const auto& [name, each] : held) {
              writer_.add_scalar(str(tag, "/", name), each, step);
            }
          }
        },
        value);
  }
}

std::string RunSummary::add_histogram(const std::string& tag, const at::Tensor& values,
                                      std::int64_t step) {
  std::string reason;
  if (values.numel() == 0) {
    reason = "it has no elements";
  } else if (!values.isfinite().all().item<bool>()) {
    reason = "it has elements that are not finite";
  } else {
    writer_.add_histogram(tag, values, step);
  }
  if (reason.empty() || !told_.insert(reason).second) return "";
  return str("step ", step, ": there is no histogram of ", tag, ": ", reason, " (said once)");
}

void RunSummary::add_config_values(std::int64_t step) {
  writer_.add_hparams(hparams_of(config_), {}, step);
}

void cut_summary(const fs::path& folder, const std::string& place) {
  const std::string name = place.substr(0, place.find(' '));
  const auto size =
      parse_number<std::uint64_t>(std::string_view(place).substr(place.rfind(' ') + 1));
  std::error_code error;
  // A foreign checkpoint's place must not lead out of the folder.
  const bool is_event_file =
      name.starts_with(telemetry::kEventFileBegin) && fs::path(name).filename() == name;
  if (!size || !is_event_file || !fs::is_regular_file(fs::symlink_status(folder / name, error)))
    return;
  if (fs::file_size(folder / name, error) > *size) fs::resize_file(folder / name, *size, error);
  for (const auto& entry : fs::directory_iterator(folder, error)) {
    const std::string other = entry.path().filename().string();
    const bool is_later = other.starts_with(telemetry::kEventFileBegin) && other > name;
    if (is_later && is_of_run(entry.path())) fs::remove(entry.path(), error);
  }
}

}  // namespace lockstep
