#include "trainers/bench/program.h"

#include <cerrno>
#include <csignal>
#include <cstdio>
#include <cstring>

#include <fcntl.h>
#include <sys/prctl.h>
#include <unistd.h>

#include "framework/base/errors.h"
#include "framework/base/text.h"

namespace lockstep::bench {
namespace {

std::vector<std::string> environment_with(const std::map<std::string, std::string>& more) {
  std::vector<std::string> variables;
  for (char** variable = environ; *variable != nullptr; ++variable) {
    const std::string text = *variable;
    if (!more.contains(text.substr(0, text.find('=')))) variables.push_back(text);
  }
  for (const auto& [name, value] : more) variables.push_back(str(name, '=', value));
  return variables;
}

std::vector<char*> pointers(std::vector<std::string>& texts) {
  std::vector<char*> result;
  for (std::string& text : texts) result.push_back(text.data());
  result.push_back(nullptr);
  return result;
}

}  // namespace

pid_t start(const Program& program, int output) {
  std::vector<std::string> arguments = program.arguments;
  std::vector<std::string> variables = environment_with(program.environment);
  const std::vector<char*> argument_pointers = pointers(arguments);
  const std::vector<char*> variable_pointers = pointers(variables);
  const pid_t driver = ::getpid();
  const pid_t pid = ::fork();
  if (pid < 0) throw Error(str("cannot start ", arguments[0], ": ", std::strerror(errno)));
  if (pid > 0) return pid;
  ::setpgid(0, 0);
  ::prctl(PR_SET_PDEATHSIG, SIGTERM);
  if (::getppid() != driver) ::_exit(1);
  const int nothing = ::open("/dev/null", O_RDONLY | O_CLOEXEC);
  ::dup2(nothing, STDIN_FILENO);
  ::dup2(output, STDOUT_FILENO);
  ::dup2(output, STDERR_FILENO);
  ::execvpe(argument_pointers[0], argument_pointers.data(), variable_pointers.data());
  ::dprintf(STDERR_FILENO, "cannot run %s: %s\n", argument_pointers[0], std::strerror(errno));
  ::_exit(127);
}

}  // namespace lockstep::bench
