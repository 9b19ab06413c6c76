#include "trainers/commands/command_line.h"

#include <algorithm>
#include <cerrno>
#include <csignal>
#include <cstddef>
#include <cstdio>
#include <filesystem>
#include <iostream>
#include <memory>
#include <optional>
#include <string_view>

#include <cxxopts.hpp>
#include <signal.h>

#include "framework/base/range.h"
namespace lockstep {
namespace {

std::string& own_name() {
  static std::string name = "train";
  return name;
}

}  // namespace

std::string program_name(const std::string& command) {
  return command.empty() ? own_name() : str(own_name(), " ", command);
}

void name_program(const std::string& path) {
  const std::string name = std::filesystem::path(path).filename();
  if (!name.empty()) own_name() = name;
}

std::vector<Flag> with_help(std::vector<Flag> flags) {
  flags.push_back({"--help", "", "Print this and end", {}});
  return flags;
}

bool parse_command_line(int argc, const char* const* argv, const CommandLine& line) {
  const auto fail = [&](const std::string& what) {
    throw ValueError(str(what, "; see ", line.program, " --help"));
  };
  const std::vector<Flag> flags = with_help(line.flags);
  const auto meant = [&](const std::string& word, const std::string& next) {
    for (const Flag& flag : flags) {
      const std::string way = flag.meant ? flag.meant(word, next) : "";
      if (!way.empty()) return str(" (did you mean '", cut(way, 200), "'?)");
    }
    return std::string();
  };
  std::vector<std::string> operands;
  std::vector<std::pair<const Flag*, Argument>> given;
  for (int i = 1; i < argc; ++i) {
    const std::string argument = argv[i];
    if (argument.rfind('-', 0) != 0 || (argument == "-" && line.operand)) {
      if (!line.operand || (!operands.empty() && !line.has_many)) {
        const bool has_value = i + 1 < argc && !std::string_view(argv[i + 1]).starts_with("--");
        std::string way = meant(argument, has_value ? argv[i + 1] : "");
        // "--set key value" lacks its '='. Of other flags that says nothing: "--config a.yaml b".
        const bool is_set = i > 2 && std::string_view(argv[i - 2]) == "--set";
        if (way.empty() && is_set) {
          const std::size_t value = std::min(argument.size(), argument.find_first_not_of('='));
          way = meant(argv[i - 1], argument.substr(value));
        }
        fail(str("'", cut(argument), "' is no flag", way));
      }
      operands.push_back(argument);
      continue;
    }
    const std::size_t equals = argument.find('=');
    const std::string name = argument.substr(0, equals);
    const auto flag = std::ranges::find(flags, name, &Flag::name);
    if (flag == flags.end()) {
      const auto all = mapped(flags, &Flag::name);
      const bool has_next = i + 1 < argc && !std::string_view(argv[i + 1]).starts_with("--");
      const std::string next = equals != std::string::npos ? argument.substr(equals + 1)
                               : has_next                  ? argv[i + 1]
                                                           : "";
      std::string way = meant(name, next.empty() ? "VALUE" : next);
      if (way.empty()) way = did_you_mean(name, all);
      const auto in_full = filtered(all, [&](const std::string& known) {
        return name == "-h" ? known == "--help" : name.size() == 2 && known.starts_with("-" + name);
      });
      if (way.empty() && in_full.size() == 1) way = str(" (did you mean '", in_full[0], "'?)");
      fail(str("unknown flag ", cut(name), way));
    }
    std::string& value = given.emplace_back(&*flag, Argument{name, ""}).second.value;
    if (flag->argument.empty() && equals != std::string::npos) {
      fail(str(name, " takes no value, but is given '", cut(argument.substr(equals + 1)), "'"));
    }
    if (flag->argument.empty()) continue;
    if (equals != std::string::npos) {
      value = argument.substr(equals + 1);
      continue;
    }
    if (++i == argc) fail(str(name, " lacks its value"));
    value = argv[i];
    if (!value.starts_with("--")) continue;
    fail(str(name, " lacks its value: ", cut(value), " follows (if that is meant: ", name, "=",
             cut(value), ")"));
  }
  for (const auto& [flag, argument] : given) {
    if (flag->name == "--help") return false;
  }
  for (const auto& [flag, argument] : given) flag->set(argument);
  for (const std::string& operand : operands) line.operand(operand);
  return true;
}

std::string flags_text(const std::vector<Flag>& flags) {
  cxxopts::Options options("");
  options.custom_help("").set_width(100);
  for (const Flag& flag : with_help(flags)) {
    std::shared_ptr<cxxopts::Value> value = cxxopts::value<bool>();
    if (!flag.argument.empty()) value = cxxopts::value<std::string>();
    options.add_options()(flag.name.substr(2), flag.help, value, flag.argument);
  }
  std::string text = options.help({""}, false);
  // The blank at which a line was broken stays at its end.
  for (std::size_t at; (at = text.find(" \n")) != text.npos;) text.erase(at, 1);
  return text.substr(text.find_first_not_of('\n'));
}

std::string help_text(const CommandLine& line) {
  return str(line.what, "\n\nUsage:\n  ", line.program, " ", line.usage, "\n\n",
             flags_text(line.flags), line.more.empty() ? "" : "\n", line.more);
}

std::string command_of(int argc, const char* const* argv, const std::string& program,
                       const std::vector<std::string>& commands) {
  const std::string word = argc > 1 ? argv[1] : "";
  if (word.empty() || word.starts_with('-')) return "";
  if (std::ranges::count(commands, word) > 0) return word;
  throw ValueError(str("unknown command '", cut(word), "'", did_you_mean(word, commands),
                       ": there are ", join(commands), "; see ", program, " --help"));
}

bool print_to_reader(const std::string& text) {
  errno = 0;
  std::cout << text;
  // Where stdout is written line by line, the C library tells a failure by this flag alone.
  if (std::cout.flush() && std::ferror(stdout) == 0) return true;
  if (errno == EPIPE) return false;
  throw Error("stdout cannot be written");
}

int print(const std::string& text) {
  return print_data(printable(text));
}

int print_data(const std::string& text) {
  if (!print_to_reader(text)) {
    // The reader of the pipe has gone ("| head"): the program ends by SIGPIPE, as others do.
    // prepare_process() has made it an error for the sake of other pipes, and threads of replicas
    // may block signals.
    sigset_t pipe;
    ::sigemptyset(&pipe);
    ::sigaddset(&pipe, SIGPIPE);
    std::signal(SIGPIPE, SIG_DFL);
    ::pthread_sigmask(SIG_UNBLOCK, &pipe, nullptr);
    std::raise(SIGPIPE);
  }
  return 0;
}

}  // namespace lockstep
