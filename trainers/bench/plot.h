#pragma once

#include <string>

#include "trainers/bench/report.h"
#include "trainers/bench/training_report.h"

namespace lockstep::bench {

/// The report as a picture, an SVG of its own: for each operation on each number of replicas two
/// panels, time a call (with quartiles) and bus bandwidth over size, a line a system, dashed for
/// peers. Colours can be told apart by the colour-blind, markers by everyone; they follow the
/// viewer's light or dark scheme. ValueError without results.
[[nodiscard]] std::string to_svg(const CollectivesReport& report);

/// For each model on each number of replicas a panel with a bar a system, the parts of its step one
/// behind the other (peers' fainter), and the floor; and one of the launches. Colours as above.
[[nodiscard]] std::string to_svg(const TrainingReport& report);

}  // namespace lockstep::bench
