#pragma once

#include <cstdint>
#include <span>
#include <string>

#include "framework/data/dataset.h"

namespace lockstep::data {

/// "sample 7 ('cat/a.png')", "sample 7 (line 9 of 'a.csv')": how messages call a sample, by its
/// name or, without one, its origin.
[[nodiscard]] std::string sample_text(const Dataset& data, std::int64_t index);

/// While an exception of the batch of `indices` is handled: the text of the first that can't be
/// made alone either; "" if each can. What it does again must not wait for others: collectives are
/// refused.
[[nodiscard]] std::string first_not_made(const Dataset& data, std::span<const std::int64_t> indices,
                                         std::int64_t epoch = kUnaugmented);

}  // namespace lockstep::data
