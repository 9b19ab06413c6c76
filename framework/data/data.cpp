#include "framework/data/data.h"

#include "framework/base/text.h"
#include "framework/data/pmean_example.h"

namespace lockstep {
namespace {

constexpr const char* kFashionMnist = "fashion_mnist";
constexpr const char* kPmeanExample = "pmean_example";

}  // namespace

const std::vector<std::string>& data_names() {
  static const std::vector<std::string> names{kFashionMnist, kPmeanExample};
  return names;
}

DataSets load_data(const DataOptions& options, std::int64_t replicas) {
  require(replicas >= 1, "load_data: replicas is ", replicas, ", but must be at least 1");
  if (options.name == kFashionMnist) {
    return {std::make_shared<const FashionMnist>(options.root, FashionMnist::Split::train),
            std::make_shared<const FashionMnist>(options.root, FashionMnist::Split::test)};
  }
  if (options.name == kPmeanExample) {
    return {std::make_shared<const PmeanExample>(replicas), nullptr};
  }
  throw ValueError(str("load_data: there is no data set '", options.name, "'",
                       did_you_mean(options.name, data_names()), "; there are ",
                       join(data_names())));
}

}  // namespace lockstep
