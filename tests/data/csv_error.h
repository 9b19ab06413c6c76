#pragma once

#include <string>

#include "framework/data/csv.h"
#include "tests/support/message_of.h"

namespace lockstep::testing {

/// What load_csv() says of these, in an error of this type.
template <typename E>
std::string csv_error(const CsvSetOptions& options, const DataContext& context = {}) {
  return message_of<E>([&] { (void)load_csv(options, context); });
}

}  // namespace lockstep::testing
