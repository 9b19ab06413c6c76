#include "trainers/command_line.h"

#include <algorithm>

#include "framework/base/errors.h"
#include "framework/base/text.h"

namespace lockstep {
namespace {

bool contains(const std::vector<std::string>& list, const std::string& word) {
  return std::find(list.begin(), list.end(), word) != list.end();
}

}  // namespace

void check_command_line(int argc, const char* const* argv, const FlagNames& names) {
  const auto fail = [&](const std::string& what) {
    throw ValueError(str(what, "; see ", names.program, " --help"));
  };
  for (int i = 1; i < argc; ++i) {
    const std::string argument = argv[i];
    if (argument.rfind('-', 0) != 0) fail(str("'", cut(argument), "' is no flag"));
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
    if (!takes_value || equals != std::string::npos) continue;
    if (++i == argc) fail(str(name, " lacks its value"));
    const std::string value = argv[i];
    if (value.rfind("--", 0) == 0) {
      fail(str(name, " lacks its value: ", cut(value), " follows (if that is meant: ", name, "=",
               cut(value), ")"));
    }
  }
}

}  // namespace lockstep
