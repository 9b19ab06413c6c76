#include "framework/engines/few_cores.h"

#include <algorithm>

#include "framework/base/text.h"

namespace lockstep::engines {

std::string few_cores_text(const Whereabouts& where, std::int64_t usable, std::int64_t of_host,
                           std::int64_t replicas) {
  const std::int64_t enough = std::min(of_host, std::max<std::int64_t>(replicas, 2));
  if (where.more_cores.empty() || usable >= enough) return "";
  return str("this task may use ", usable, " of this host's ", of_host, " cores, and runs ",
             replicas == 1 ? "1 replica" : str(replicas, " replicas at once"), ": ",
             where.more_cores);
}

}  // namespace lockstep::engines
