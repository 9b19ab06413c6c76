#include "trainers/run/sample_place.h"

#include <iterator>

#include "framework/axes/environment.h"
#include "framework/base/errors.h"
#include "framework/base/text.h"
#include "framework/data/sample_text.h"

namespace lockstep {
namespace {

// Whether an Error is handled: these name shapes themselves.
bool is_ours() {
  try {
    throw;
  } catch (const Error&) {
    return true;
  } catch (...) {
    return false;
  }
}

}  // namespace

std::string BatchSamples::first_not_made() const {
  const std::string sample = data::first_not_made(data, indices, epoch);
  return sample.empty() || set.empty() ? sample : str(sample, " of the ", set, " set");
}

std::string BatchSamples::first_refused(const std::function<void(std::int64_t row)>& of_row) const {
  const CallsRefused no_calls("not in a search for the sample that an exception is of");
  std::int64_t first = -1;
  std::int64_t refused = 0;
  for (std::int64_t row = 0; row < std::ssize(indices); ++row) {
    if (!thrown_by([&] { of_row(row); })) continue;
    if (refused++ == 0) first = row;
  }
  if (refused == 0 || (refused == std::ssize(indices) && refused > 1)) return "";
  const std::int64_t index = indices[static_cast<std::size_t>(first)];
  return str("row ", first, " is ", data::sample_text(data, index),
             set.empty() ? "" : str(" of the ", set, " set"));
}

Batch made_batch(const BatchSamples& samples) {
  return placed([&] { return samples.first_not_made(); },
                [&] { return samples.data.batch(samples.indices, samples.epoch); });
}

std::string place_of_measure(
    const std::string& what, const BatchSamples& samples, const at::Tensor& outputs,
    const at::Tensor& targets,
    const std::function<void(const at::Tensor& outputs, const at::Tensor& targets)>& of) {
  const std::string given = outputs.defined() ? str("outputs ", form_of(outputs), ", ") : "";
  const std::string shapes = is_ours() ? "" : str(" of ", given, "targets ", form_of(targets));
  // Where they have no row for each sample, none is to blame.
  const auto has_rows = [&](const at::Tensor& tensor) {
    return tensor.dim() > 0 && tensor.size(0) == std::ssize(samples.indices);
  };
  if ((outputs.defined() && !has_rows(outputs)) || !has_rows(targets)) return str(what, shapes);
  const std::string refused = samples.first_refused([&](std::int64_t row) {
    of(outputs.defined() ? outputs.detach().narrow(0, row, 1) : outputs, targets.narrow(0, row, 1));
  });
  return str(refused.empty() ? "" : refused + "; ", what, shapes);
}

}  // namespace lockstep
