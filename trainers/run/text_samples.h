#pragma once

#include <cstdint>

#include <nlohmann/json.hpp>

#include "framework/data/dataset.h"
#include "models/model.h"

namespace lockstep {

/// How many bytes each of text_samples() may have, so that the model runs on no more than
/// `positions` for all of them: some at least, and as many as a page shows at most.
[[nodiscard]] std::int64_t sampled_bytes(const SampleType& sample, std::int64_t positions);

/// How a model of bytes goes on from the beginnings of two samples of `data`, by the same draws
/// each time: `train sample` gives the same. Null for other data. All replicas together, each
/// alike, since a model may have collectives.
///
///   texts     each with prompt and text; any bytes
///   no_texts  in their place: what the model, which may be a program's own, has thrown. Failures
///             of memory and of other replicas are thrown on.
[[nodiscard]] nlohmann::ordered_json text_samples(Model& model, const Dataset& data,
                                                  std::int64_t bytes);

}  // namespace lockstep
