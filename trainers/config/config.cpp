#include "trainers/config/config.h"

#include <array>
#include <cerrno>
#include <chrono>
#include <cstddef>
#include <utility>

#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include "framework/base/errors.h"
#include "framework/base/limits.h"
#include "framework/base/logging.h"
#include "framework/base/open_file.h"
#include "framework/base/other_words.h"
#include "framework/base/poll_set.h"
#include "framework/base/range.h"
#include "framework/base/text.h"

namespace lockstep {
namespace {

constexpr std::size_t kLongestKiB = 256;
constexpr std::size_t kLongestConfig = kLongestKiB << 10;

// Opens stdin, a FIFO, such as a shell's <(command), whose writer may be yet to come, or a file.
OpenedFile open_config(const std::filesystem::path& file) {
  const bool is_stdin = file == "-" || file == "/dev/stdin";
  struct stat status {};
  const bool is_fifo = ::stat(file.c_str(), &status) == 0 && S_ISFIFO(status.st_mode);
  if (!is_stdin && !is_fifo) return open_file(file, O_RDONLY);
  Descriptor opened(is_stdin ? ::fcntl(STDIN_FILENO, F_DUPFD_CLOEXEC, 0)
                             : ::open(file.c_str(), O_RDONLY | O_NONBLOCK | O_CLOEXEC | O_NOCTTY));
  if (!opened.open() || ::fstat(opened.get(), &status) != 0) {
    return {.error = errno, .reason = text_of_errno(errno)};
  }
  const mode_t kind = status.st_mode;
  const bool can_end =
      S_ISREG(kind) || S_ISFIFO(kind) || S_ISSOCK(kind) || ::isatty(opened.get()) == 1;
  if (!can_end) return {.reason = str("it is ", kind_of_file(kind), ", not a file")};
  return {.descriptor = std::move(opened)};
}

}  // namespace

std::string config_name(const std::filesystem::path& file) {
  return file == "-" ? "<stdin>" : file.string();
}

std::string read_config(const std::filesystem::path& file) {
  const auto fail = [&](const std::string& reason) {
    throw DataError(str("cannot read the config ", config_name(file), ": ", reason));
  };
  const OpenedFile opened = open_config(file);
  const pollfd input{opened.descriptor.get(), POLLIN, 0};
  if (!opened.descriptor.open()) fail(opened.reason);
  const bool is_typed = ::isatty(input.fd) == 1;
  if (is_typed || !wait_for(input, std::chrono::seconds(1))) {
    log_info(
        str("waiting for the config from ", config_name(file), is_typed ? "; Ctrl-D ends it" : ""));
  }
  std::string text;
  std::array<char, 1 << 16> part{};
  for (ssize_t count = -1; count != 0;) {
    (void)wait_for(input, std::chrono::milliseconds::max());
    count = ::read(input.fd, part.data(), part.size());
    if (count < 0 && errno != EINTR && errno != EAGAIN) fail(text_of_errno(errno));
    if (count > 0) text.append(part.data(), static_cast<std::size_t>(count));
    if (text.size() > kLongestConfig) {
      fail(str("it is longer than ", kLongestKiB, " KiB, more than any config"));
    }
  }
  return text;
}

bool operator==(const Config& a, const Config& b) {
  return values_of(a) == values_of(b);
}

Config parse_config(const std::string& text, const std::string& name,
                    const std::vector<keys::Override>& overrides) {
  Config config;
  config.places = keys::read_keys(text, name, config_table(config), overrides);
  return config;
}

Config load_config(const std::filesystem::path& file,
                   const std::vector<keys::Override>& overrides) {
  return parse_config(read_config(file), config_name(file), overrides);
}

std::map<std::string, std::string> values_of(Config config) {
  return keys::key_values(config_table(config));
}

std::set<std::string> changeable_keys() {
  Config defaults;
  return keys::keys_of_which(config_table(defaults),
                             [](const keys::KeyTraits& traits, bool) { return traits.may_change; });
}

std::set<std::string> place_keys(Config config) {
  return keys::keys_of_which(config_table(config), [](const keys::KeyTraits& traits, bool applies) {
    return applies && traits.is_place;
  });
}

std::string to_yaml(Config config) {
  return keys::keys_text(config_table(config));
}

std::string config_help(const std::optional<std::string>& name) {
  Config defaults;
  const std::vector<keys::Section> table = config_table(defaults);
  if (!name) return keys::keys_help(table);
  const auto is_name = [&](const std::string& known) { return folded(known) == folded(*name); };
  std::string of_choices, of_sections, of_keys;
  std::vector<std::string> names, keys;
  for (const keys::Section& section : table) {
    for (const auto& [choice, help] : section.choices) {
      names.push_back(choice);
      if (is_name(choice)) of_choices += keys::keys_help(section, choice);
    }
  }
  for (const keys::Section& section : table) {
    names.push_back(section.name);
    if (is_name(section.name)) of_sections += keys::keys_help({section});
    const auto is_named = [&](const keys::ConfigKey& key) {
      return is_name(key.name) || is_name(str(section.name, ".", key.name));
    };
    of_keys += keys::keys_help({{section.name, filtered(section.keys, is_named)}});
    for (const keys::ConfigKey& key : section.keys) keys.push_back(key.name);
  }
  const std::string text = of_choices + of_sections;
  if (!text.empty() || !of_keys.empty()) return text.empty() ? of_keys : text;
  std::vector<std::string> all = names;
  all.insert(all.end(), keys.begin(), keys.end());
  throw ValueError(str("there is no model, data set, loss, optimizer, schedule, section or key '",
                       cut(*name), "'", did_you_mean(*name, all), "; there are ", join(names),
                       ", and keys"));
}

}  // namespace lockstep
