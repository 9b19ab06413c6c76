#include "framework/data/sample_text.h"

#include "framework/axes/environment.h"
#include "framework/base/errors.h"
#include "framework/base/text.h"

namespace lockstep::data {

std::string sample_text(const Dataset& data, std::int64_t index) {
  std::string name;
  // For messages: no exception is lost for a name that can't be had, either.
  (void)thrown_by([&] {
    name = data.sample_name(index);
    name = name.empty() ? data.origin(index) : str("'", name, "'");
  });
  return str("sample ", index, name.empty() ? "" : str(" (", name, ")"));
}

std::string first_not_made(const Dataset& data, std::span<const std::int64_t> indices,
                           std::int64_t epoch) {
  const CallsRefused refused("not in a search for the sample that an exception is of");
  for (const std::int64_t index : indices) {
    if (thrown_by([&] { (void)data.batch({&index, 1}, epoch); })) return sample_text(data, index);
  }
  return "";
}

}  // namespace lockstep::data
