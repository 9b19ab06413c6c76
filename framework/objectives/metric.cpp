#include "framework/objectives/metric.h"

#include <charconv>
#include <cmath>
#include <cstdint>
#include <numbers>
#include <string_view>
#include <utility>

#include "framework/base/errors.h"
#include "framework/base/text.h"
#include "framework/objectives/cross_entropy.h"
#include "framework/objectives/loss_metric.h"
#include "framework/objectives/regression_metrics.h"
#include "framework/objectives/top_accuracy.h"

namespace lockstep {
namespace {

constexpr std::string_view kTop = "top_";

// The K of "top_K".
std::int64_t top_count(std::string_view name) {
  const std::string_view digits = name.substr(kTop.size());
  std::int64_t k = 0;
  const auto [end, error] = std::from_chars(digits.data(), digits.data() + digits.size(), k);
  require(error == std::errc() && end == digits.data() + digits.size() && k >= 1 &&
              digits.front() != '0',
          "metric '", name, "': K must be a number from 1 on, as in top_5");
  return k;
}

// The plain one, of the targets that count in `loss`.
std::shared_ptr<const Loss> cross_entropy_beside(const Loss& loss) {
  return make_cross_entropy({.ignore_index = loss.ignore_index()});
}

}  // namespace

const std::vector<std::string>& metric_names() {
  static const std::vector<std::string> names{
      "accuracy", "top_K", "loss", "perplexity", "bits_per_byte", "r2", "mean_absolute_error"};
  return names;
}

std::shared_ptr<const Metric> make_metric(const std::string& name,
                                          std::shared_ptr<const Loss> loss) {
  require(loss != nullptr, "metric '", name, "': there is no loss");
  using namespace objectives;
  if (name == "accuracy") return make_top_accuracy(name, 1, loss->ignore_index());
  if (name.starts_with(kTop)) {
    return make_top_accuracy(name, top_count(name), loss->ignore_index());
  }
  if (name == "loss") {
    return make_loss_metric(std::move(loss), [](double mean) { return mean; });
  }
  if (name == "perplexity") {
    return make_loss_metric(cross_entropy_beside(*loss),
                            [](double mean) { return std::exp(mean); });
  }
  if (name == "bits_per_byte") {
    return make_loss_metric(cross_entropy_beside(*loss),
                            [](double mean) { return mean / std::numbers::ln2; });
  }
  if (name == "r2") return make_r2();
  if (name == "mean_absolute_error") return make_mean_absolute_error();
  throw ValueError(str("unknown metric '", name, "'", did_you_mean(name, metric_names()),
                       "; known are ", join(metric_names()), " (such as top_5)"));
}

}  // namespace lockstep
