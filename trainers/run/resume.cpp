#include "trainers/run/resume.h"

#include <algorithm>
#include <memory>
#include <set>
#include <system_error>

#include "framework/base/errors.h"
#include "framework/base/text.h"
#include "framework/keys/yaml_tree.h"
#include "framework/maps/machine.h"
#include "framework/objectives/metric.h"
#include "framework/storage/checkpoint_folder.h"
#include "framework/telemetry/run_folder.h"
#include "framework/training/float32_sums.h"

namespace fs = std::filesystem;

namespace lockstep {
namespace {

const std::string kThreadsKey = "parallel.threads_per_replica";

template <typename Map>
std::int64_t checked_count(const fs::path& checkpoint, const Map& counts, const std::string& name) {
  constexpr std::int64_t kMost = std::int64_t{1} << 53;
  const std::int64_t count = recorded_entry(checkpoint, counts, name);
  if (count >= 0 && count <= kMost) return count;
  throw DataError(str(checkpoint.string(), " says that '", name, "' is ", count));
}

void waive(ResumePoint& point, const std::string& reason) {
  point.waived += reason + "\n";
}

// Changes that change what is computed: "with another config", of "keys".
void allow_changes(ResumePoint& point, const char* difference, const char* what,
                   const std::vector<std::string>& changes) {
  if (changes.empty()) return;
  require(point.with_changes, "the checkpoint ", point.checkpoint.string(), " is of a run ",
          difference, ": ", join(changes),
          ". That changes what is computed: begin a new run, or add --resume-with-changes");
  waive(point, str(what, " were changed: ", join(changes)));
}

std::shared_ptr<const keys::YamlNode> value_of(const std::shared_ptr<const keys::YamlNode>& map,
                                               const std::string& key) {
  if (map == nullptr) return nullptr;
  const auto found = std::ranges::find(map->entries, key, &keys::YamlEntry::key);
  return found == map->entries.end() ? nullptr : found->value;
}

// "model 'net'": what a config names that this program does not have.
std::vector<std::string> unknown_parts(const std::string& text) {
  Config defaults;
  keys::YamlProblems problems;
  const auto config = keys::parse_yaml(text, {}, problems);
  std::vector<std::string> unknown;
  for (const keys::Section& section : config_table(defaults)) {
    auto named = value_of(config, section.name);
    if (named != nullptr && named->kind == keys::YamlNode::Kind::map) {
      named = value_of(named, "name");
    }
    if (named == nullptr || section.choices.empty()) continue;
    const auto names = mapped(section.choices, [](const auto& choice) { return choice.first; });
    if (std::ranges::count(names, named->text) > 0) continue;
    unknown.push_back(str(section.name, " '", cut(named->text), "'"));
  }
  const auto metrics = value_of(value_of(config, "trainer"), "metrics");
  for (const auto& metric : metrics ? metrics->items : decltype(metrics->items)()) {
    const std::vector<std::string> names = metric_registry().names();
    if (metric->text.starts_with("top_") || std::ranges::count(names, metric->text) > 0) continue;
    unknown.push_back(str("metric '", cut(metric->text), "'"));
  }
  return unknown;
}

void compare(ResumePoint& point, const Config& config) {
  const auto before = values_of(config_in_checkpoint(point.checkpoint, point.info));
  const std::set<std::string> changeable = changeable_keys();
  std::vector<std::string> refused;
  for (const auto& [key, value] : values_of(config)) {
    const std::string old =
        key == kThreadsKey ? str(count_of(point, kThreadsCount)) : before.at(key);
    if (value == old) continue;
    const auto shown = [](const std::string& written) {
      return written.empty() ? "not set" : written;
    };
    point.changes.push_back(str(key, " was ", shown(old), ", is ", shown(value)));
    if (!changeable.contains(key)) refused.push_back(point.changes.back());
  }
  const bool reads_alike = std::ranges::none_of(
      refused, [](const std::string& change) { return change.starts_with("data."); });
  if (reads_alike) point.fitted = data_record(point.checkpoint, point.info).fitted;
  allow_changes(point, "with another config", "keys", refused);
}

void waive_what_changed(ResumePoint& point, const Config& config) {
  point.waived = entry_of(point.info.texts, kWaivedText).value_or("");
  const std::string versions = recorded_entry(point.checkpoint, point.info.texts, kVersionsText);
  if (versions != versions_text()) {
    waive(point, str("the checkpoint was saved with ", versions, ", and the run went on with ",
                     versions_text()));
  }
  if (config.zero.compression != Compression::none &&
      point.info.replicas != config.launch.replicas) {
    waive(point, str("what compression had left out on ", point.info.replicas,
                     " replicas was divided evenly among ", config.launch.replicas));
  }
}

}  // namespace

fs::path checkpoints_of(const fs::path& output) {
  return output / kCheckpointsFolder;
}

fs::path run_of_checkpoint(const fs::path& checkpoint) {
  std::error_code error;
  const fs::path folder = fs::weakly_canonical(checkpoint, error).parent_path();
  const fs::path output = folder.parent_path();
  const bool is_of_run = !checkpoint.empty() && checkpoints_of(output) == folder &&
                         fs::exists(output / "config.yaml", error);
  return is_of_run ? output.lexically_proximate(fs::current_path(error)) : fs::path();
}

std::string waive_half_sums(ResumePoint& point) {
  const bool were_safe = count_of(point, kSafeConvolutionsCount) >= kSafeConvolutions;
  if (were_safe || !training::have_summed_in_float32()) return "";
  const std::string reason =
      "some bfloat16 sums have other bits than when the run began: LibTorch's own may stop growing "
      "at 256";
  waive(point, reason);
  return reason;
}

std::int64_t count_of(const ResumePoint& point, const std::string& name) {
  return checked_count(point.checkpoint, point.info.counts, name);
}

std::string versions_text() {
  return str("Lockstep " LOCKSTEP_VERSION ", ", maps::libtorch_version(), ", ", maps::blas().name);
}

Config config_in_checkpoint(const fs::path& checkpoint, const CheckpointInfo& info,
                            const std::vector<keys::Override>& overrides) {
  const std::string text = recorded_entry(checkpoint, info.texts, kConfigText);
  const std::vector<std::string> unknown = unknown_parts(text);
  // Unknown parts come first: errors about their keys would mislead.
  require(unknown.empty(), checkpoint.string(),
          " is of a program that has parts of its own: ", join(unknown),
          "; this program lacks them, and that one has all of train's commands");
  const auto mended = entry_of(info.counts, kSafeConvolutionsCount).value_or(0);
  require<DataError>(mended >= kLeastSafeConvolutions, checkpoint.string(),
                     " was saved by a Lockstep that is too old: its '", kSafeConvolutionsCount,
                     "' must be at least ", kLeastSafeConvolutions, ", is ", mended);
  return parse_config(text, str("the config in ", checkpoint.string()), overrides);
}

std::string written(Config config, const ResumePoint* point) {
  if (point != nullptr && point->keeps_threads) config.launch.threads_per_replica = 0;
  return to_yaml(config);
}

Config config_of_checkpoint(const fs::path& checkpoint, const CheckpointInfo& info,
                            const std::vector<keys::Override>& overrides) {
  Config config = config_in_checkpoint(checkpoint, info, overrides);
  if (config.launch.threads_per_replica == 0) {
    config.launch.threads_per_replica = checked_count(checkpoint, info.counts, kThreadsCount);
  }
  return config;
}

std::optional<fs::path> find_checkpoint(const std::string& resume, const fs::path& output) {
  if (resume.empty()) return std::nullopt;
  fs::path checkpoint = resume;
  if (resume == "auto") {
    const auto newest = newest_checkpoint(checkpoints_of(output));
    if (!newest) return std::nullopt;
    checkpoint = *newest;
  } else {
    verify_checkpoint(checkpoint);
  }
  // `latest` may lead elsewhere before all replicas have read it.
  return storage::CheckpointFolder::resolved(checkpoint);
}

ResumePoint resume_point(const fs::path& checkpoint, bool with_changes, Config& config) {
  ResumePoint point{
      .checkpoint = checkpoint, .info = checkpoint_info(checkpoint), .with_changes = with_changes};
  if (config.launch.threads_per_replica == 0) {
    config.launch.threads_per_replica = count_of(point, kThreadsCount);
    point.keeps_threads = true;
  }
  waive_what_changed(point, config);
  compare(point, config);
  return point;
}

std::optional<ResumePoint> find_resume_point(const std::string& resume, const fs::path& output,
                                             bool with_changes, Config& config) {
  const auto checkpoint = find_checkpoint(resume, output);
  if (!checkpoint) return std::nullopt;
  return resume_point(*checkpoint, with_changes, config);
}

void check_data(ResumePoint& point, const SetRecords& sets) {
  const auto changes = changes_of_sets(data_record(point.checkpoint, point.info).sets, sets);
  point.changes.insert(point.changes.end(), changes.begin(), changes.end());
  allow_changes(point, "on other data", "data", changes);
}

}  // namespace lockstep
