#include "trainers/config/config.h"

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <span>
#include <utility>

#include <fcntl.h>

#include "framework/base/errors.h"
#include "framework/base/open_file.h"
#include "framework/base/text.h"
#include "framework/data/data.h"
#include "framework/objectives/objectives.h"
#include "framework/optim/optimizers.h"
#include "framework/storage/file.h"
#include "models/model.h"

namespace lockstep {
namespace {

constexpr std::size_t kLongestKiB = 256;
constexpr std::size_t kLongestConfig = kLongestKiB << 10;

std::string read_text(const std::filesystem::path& file) {
  const auto fail = [&](const std::string& reason) {
    throw DataError(str("cannot read the config ", file.string(), ": ", reason));
  };
  OpenedFile opened = open_file(file, O_RDONLY);
  if (!opened.descriptor.open()) fail(opened.reason);
  const File in(std::move(opened.descriptor), file, ErrorKind::data);
  const std::uint64_t size = in.size();
  if (size > kLongestConfig) {
    fail(str("it is longer than ", kLongestKiB, " KiB, more than any config"));
  }
  std::string text(size, '\0');
  in.read(0, std::as_writable_bytes(std::span(text)));
  return text;
}

template <typename Kind>
std::vector<std::pair<std::string, std::string>> described(const keys::Registry<Kind>& registry) {
  std::vector<std::pair<std::string, std::string>> choices;
  for (const auto& choice : registry.choices()) {
    choices.emplace_back(choice.name, choice.help);
  }
  return choices;
}

}  // namespace

bool operator==(const Config& a, const Config& b) {
  return values_of(a) == values_of(b);
}

Config parse_config(const std::string& text, const std::string& name,
                    const std::vector<keys::Override>& overrides) {
  Config config;
  config.places = keys::read_keys(text, name, config_table(config), overrides);
  return config;
}

Config parse_recorded_config(const std::string& text, const std::string& name,
                             const std::vector<keys::Override>& overrides) {
  Config config;
  config.places = keys::read_recorded_keys(text, name, config_table(config), overrides);
  return config;
}

std::vector<std::string> keep_defaults_of(const Config& recorded, Config& config) {
  const auto values = values_of(recorded);
  std::vector<std::string> lines;
  for (const std::string& key :
       keys::keep_values_before(config_table(config), config.places, values)) {
    lines.push_back(str(key, " stays ", values.at(key), ", as it was when the run began"));
  }
  return lines;
}

Config load_config(const std::filesystem::path& file,
                   const std::vector<keys::Override>& overrides) {
  return parse_config(read_text(file), file.string(), overrides);
}

std::map<std::string, std::string> values_of(Config config) {
  return keys::key_values(config_table(config));
}

std::set<std::string> changeable_keys() {
  Config defaults;
  return keys::changeable_keys(config_table(defaults));
}

std::set<std::string> place_keys(Config config) {
  return keys::place_keys(config_table(config));
}

std::string to_yaml(Config config) {
  return keys::keys_text(config_table(config));
}

std::vector<SectionChoices> config_choices() {
  return {{"model", described(model_registry())},
          {"data", described(data_registry())},
          {"loss", described(loss_registry())},
          {"optimizer", described(optimizer_registry())},
          {"schedule", described(schedule_registry())}};
}

std::string config_help(const std::optional<std::string>& name) {
  Config defaults;
  const std::vector<keys::Section> table = config_table(defaults);
  if (!name) return keys::keys_help(table);
  const auto own = std::ranges::find(table, *name, &keys::Section::name);
  std::string text = own == table.end() ? "" : keys::keys_help({*own});
  std::vector<std::string> names;
  for (const auto& [section, choices] : config_choices()) {
    for (const auto& [choice, help] : choices) {
      names.push_back(choice);
      if (choice != *name) continue;
      const auto its = std::ranges::find(table, section, &keys::Section::name);
      text += keys::keys_help(*its, choice);
    }
  }
  for (const keys::Section& section : table) names.push_back(section.name);
  require(!text.empty(), "there is no model, data set, loss, optimizer or schedule '", cut(*name),
          "'", did_you_mean(*name, names), "; there are ", join(names));
  return text;
}

}  // namespace lockstep
