#include "framework/engines/stop_grace.h"

#include <algorithm>
#include <fstream>

#include "framework/base/number_text.h"
#include "framework/base/text.h"

namespace lockstep::engines {

bool is_too_short(const StopGrace& grace, const StopWork& work) {
  return work.save_s && work.step_s + *work.save_s > grace.seconds;
}

std::string grace_text(const StopGrace& grace, const StopWork& work) {
  const bool lacks = is_too_short(grace, work);
  return str(work.save_s ? formatted("the last save took %.3g s and the last step %.3g s%s ",
                                     *work.save_s, work.step_s, lacks ? ", but" : ";")
                         : "",
             grace.who, formatted(" kills processes %.3g s after SIGTERM", grace.seconds),
             lacks && !grace.longer.empty() ? ": " + grace.longer : "");
}

double kill_wait_in(const std::filesystem::path& slurm_conf) {
  std::ifstream lines(slurm_conf);
  for (std::string line; std::getline(lines, line);) {
    line.resize(std::min(line.find('#'), line.size()));
    std::erase_if(line, [](char letter) { return letter == ' ' || letter == '\t'; });
    const std::size_t equals = line.find('=');
    if (equals == std::string::npos) continue;
    if (lower(line.substr(0, equals)) != "killwait") continue;
    if (const auto seconds = parse_number<double>(line.substr(equals + 1))) return *seconds;
  }
  return 30;
}

}  // namespace lockstep::engines
