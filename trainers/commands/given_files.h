#pragma once

#include <memory>
#include <string>
#include <vector>

#include "framework/data/data.h"

namespace lockstep {

/// The samples of the files and folders at `paths`, one after another, as `picked` reads them with
/// `context`, which has what was fitted. Their names are the paths by which they are opened from
/// here; those of a single table's rows, or array's samples, are none. They have targets if those
/// of all paths do, and the columns that all have. ValueError if the source reads no file alone,
/// DataError for what is not there or damaged.
[[nodiscard]] std::shared_ptr<const Dataset> load_given(const keys::Picked& picked,
                                                        const DataContext& context,
                                                        const std::vector<std::string>& paths);

}  // namespace lockstep
