#include "framework/data/damaged.h"

#include <algorithm>
#include <deque>
#include <span>
#include <utility>
#include <vector>

#include "framework/base/errors.h"
#include "framework/base/range.h"
#include "framework/base/text.h"
#include "framework/data/finite.h"
#include "framework/data/loader.h"
#include "framework/data/sample_text.h"
#include "framework/tree/error_place.h"

namespace lockstep {
namespace {

using Found = std::function<void(const DamagedSample& damaged)>;

// What is wrong with one of these targets of classes; "" if nothing is.
std::string wrong_class(const Dataset& data, const at::Tensor& targets,
                        const DamageSearch& search) {
  const SampleType type = data.type();
  if (type.classes == 0 || type.target.dtype != at::kLong || !data.has_targets()) return "";
  const at::Tensor all = targets.contiguous();
  const auto* const values = all.data_ptr<std::int64_t>();
  for (std::int64_t i = 0; i < all.numel(); ++i) {
    const std::int64_t target = values[i];
    const bool is_class = target >= 0 && target < type.classes;
    if (is_class || target == type.ignored || target == search.ignored) continue;
    return str("a target that is ", target, ", but must be a class, 0 to ", type.classes - 1);
  }
  return "";
}

void look_at_each(const Dataset& data, std::span<const std::int64_t> numbers,
                  const DamageSearch& search, const Found& found) {
  for (const std::int64_t index : numbers) {
    std::string reason;
    try {
      reason = non_finite_of(data, index);
      if (reason.empty()) reason = wrong_class(data, data.batch({&index, 1}).targets, search);
      const std::string origin = reason.empty() ? "" : data.origin(index);
      if (!origin.empty()) reason = str(origin, ": ", reason);
    } catch (const DataError& error) {
      reason = error.what();
    }
    if (!reason.empty()) found({index, std::move(reason)});
  }
}

}  // namespace

void find_damaged(const Dataset& data, const DamageSearch& search, const Found& found) {
  // Samples that are slow to make are made alone, as one damaged would have all made again, and
  // others together up to these bytes.
  constexpr std::int64_t kBytesTogether = std::int64_t{1} << 20;
  const std::int64_t bytes = std::max<std::int64_t>(data.type().input.bytes(), 1);
  const std::int64_t together =
      data.is_slow() ? 1 : std::max<std::int64_t>(kBytesTogether / bytes, 1);
  const std::int64_t ahead = 4 * search.threads;
  Loader loader(data, {.threads = search.threads, .ahead = ahead});
  std::deque<std::vector<std::int64_t>> asked;
  std::int64_t next = 0;
  const auto ask = [&] {
    if (next == data.size()) return;
    asked.push_back(consecutive(next, std::min(together, data.size() - next)));
    next += std::ssize(asked.back());
    loader.request(asked.back(), kUnaugmented);
  };
  for (std::int64_t i = 0; i < ahead; ++i) ask();
  std::int64_t done = 0;
  for (; !asked.empty(); asked.pop_front()) {
    const std::vector<std::int64_t>& numbers = asked.front();
    try {
      const Batch batch = loader.next();
      const bool is_whole = is_finite(batch.inputs) &&
                            (!data.has_targets() || is_finite(batch.targets)) &&
                            wrong_class(data, batch.targets, search).empty();
      if (!is_whole) look_at_each(data, numbers, search, found);
    } catch (const DataError& error) {
      numbers.size() == 1 ? found({numbers[0], error.what()})
                          : look_at_each(data, numbers, search, found);
    } catch (...) {
      rethrow_at(data::first_not_made(data, numbers));
    }
    done += std::ssize(numbers);
    if (search.progress) search.progress(done, data.size());
    ask();
  }
}

}  // namespace lockstep
