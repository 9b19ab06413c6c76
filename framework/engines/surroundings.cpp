#include "framework/engines/surroundings.h"

#include <array>
#include <cstddef>
#include <memory>

#include <netdb.h>
#include <unistd.h>

namespace lockstep::engines {
namespace {

// Returns the name with its domain, where the system knows one: in a pod, /etc/hosts has it.
std::string host_name() {
  std::array<char, 256> name{};
  if (::gethostname(name.data(), name.size() - 1) != 0) return "";
  addrinfo hints{};
  hints.ai_flags = AI_CANONNAME;
  addrinfo* first = nullptr;
  if (::getaddrinfo(name.data(), nullptr, &hints, &first) != 0) return name.data();
  const std::unique_ptr<addrinfo, decltype(&::freeaddrinfo)> found(first, ::freeaddrinfo);
  return found->ai_canonname == nullptr ? name.data() : found->ai_canonname;
}

}  // namespace

Surroundings surroundings_of_process(std::int64_t pid, const std::string& program) {
  Surroundings here{.host_name = host_name,
                    .pid = pid,
                    .has_terminal = ::isatty(STDIN_FILENO) == 1,
                    .program = program};
  for (char** each = environ; *each != nullptr; ++each) {
    const std::string text = *each;
    const std::size_t equals = text.find('=');
    if (equals != std::string::npos)
      here.variables[text.substr(0, equals)] = text.substr(equals + 1);
  }
  return here;
}

}  // namespace lockstep::engines
