#include "trainers/run/command_text.h"

#include <cstddef>
#include <string_view>

#include "framework/base/text.h"

namespace lockstep {
namespace {

constexpr std::string_view kSecret = "--secret-file";

std::string shell_word(const std::string& word) {
  constexpr std::string_view kPlain =
      "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789_-+=.,:/@%^";
  if (!word.empty() && word.find_first_not_of(kPlain) == std::string::npos) return word;
  std::string quoted = "'";
  for (const char letter : word) quoted += letter == '\'' ? "'\\''" : std::string(1, letter);
  return quoted + "'";
}

}  // namespace

std::string command_text(const std::vector<std::string>& words) {
  std::vector<std::string> shown;
  for (std::size_t i = 0; i < words.size(); ++i) {
    if (words[i] == kSecret) {
      ++i;  // its path
    } else if (!words[i].starts_with(str(kSecret, "="))) {
      shown.push_back(shell_word(words[i]));
    }
  }
  return join(shown, " ");
}

}  // namespace lockstep
