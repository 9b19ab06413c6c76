#pragma once

#include <string>

#include "trainers/bench/report.h"

namespace lockstep::bench {

/// The report as a picture, an SVG of its own: for each operation on each number of replicas two
/// panels, time a call (with quartiles) and bus bandwidth over size, a line a system, dashed for
/// peers. Colours can be told apart by the colour-blind, markers by everyone; they follow the
/// viewer's light or dark scheme. ValueError without results.
[[nodiscard]] std::string to_svg(const CollectivesReport& report);

}  // namespace lockstep::bench
