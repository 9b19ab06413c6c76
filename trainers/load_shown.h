#pragma once

#include <functional>

#include "framework/data/data.h"

namespace lockstep {

/// Calls `work` with a search that shows its progress on stderr, unless `quiet`: on a terminal a
/// bar of samples, elsewhere a line a minute.
void with_shown_search(DamageSearch search, bool quiet,
                       const std::function<void(const DamageSearch& search)>& work);

/// load_data(), which may look for damaged files first: then its progress is shown.
[[nodiscard]] DataSets load_shown(const keys::Picked& picked, DataContext context,
                                  bool quiet = false);

}  // namespace lockstep
