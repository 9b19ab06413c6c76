#include "trainers/commands/command_line.h"

#include <algorithm>
#include <iostream>

#include "framework/base/errors.h"
#include "framework/base/text.h"

namespace lockstep {
namespace {

bool contains(const std::vector<std::string>& list, const std::string& word) {
  return std::find(list.begin(), list.end(), word) != list.end();
}

}  // namespace

std::vector<Argument> parse_command_line(int argc, const char* const* argv,
                                         const FlagNames& names) {
  const auto fail = [&](const std::string& what) {
    throw ValueError(str(what, "; see ", names.program, " --help"));
  };
  std::vector<Argument> arguments;
  std::size_t operands = 0;
  for (int i = 1; i < argc; ++i) {
    const std::string argument = argv[i];
    if (argument.rfind('-', 0) != 0) {
      if (++operands > names.most_operands) fail(str("'", cut(argument), "' is no flag"));
      arguments.push_back({"", argument});
      continue;
    }
    const std::size_t equals = argument.find('=');
    const std::string name = argument.substr(0, equals);
    const bool takes_value = contains(names.with_value, name);
    if (!takes_value && !contains(names.alone, name)) {
      std::vector<std::string> all = names.with_value;
      all.insert(all.end(), names.alone.begin(), names.alone.end());
      fail(str("unknown flag ", cut(name), did_you_mean(name, all)));
    }
    if (!takes_value && equals != std::string::npos) {
      fail(str(name, " takes no value, but is given '", cut(argument.substr(equals + 1)), "'"));
    }
    if (!takes_value || equals != std::string::npos) {
      arguments.push_back({name, takes_value ? argument.substr(equals + 1) : ""});
      continue;
    }
    if (++i == argc) fail(str(name, " lacks its value"));
    const std::string value = argv[i];
    if (value.rfind("--", 0) == 0) {
      fail(str(name, " lacks its value: ", cut(value), " follows (if that is meant: ", name, "=",
               cut(value), ")"));
    }
    arguments.push_back({name, value});
  }
  return arguments;
}

std::optional<std::string> value_of(const std::vector<Argument>& arguments,
                                    const std::string& flag) {
  std::optional<std::string> value;
  for (const Argument& argument : arguments) {
    if (argument.flag == flag) value = argument.value;
  }
  return value;
}

std::string command_of(int argc, const char* const* argv, const std::string& program,
                       const std::vector<std::string>& commands) {
  const std::string word = argc > 1 ? argv[1] : "";
  if (word.empty() || word.starts_with('-') || contains(commands, word)) {
    return word.starts_with('-') ? "" : word;
  }
  throw ValueError(str("unknown command '", cut(word), "'", did_you_mean(word, commands),
                       ": there are ", join(commands), "; see ", program, " --help"));
}

int print(const std::string& text) {
  std::cout << text;
  if (!std::cout.flush()) throw Error("stdout cannot be written");
  return 0;
}

}  // namespace lockstep
