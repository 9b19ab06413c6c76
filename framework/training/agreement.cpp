#include "framework/training/agreement.h"

#include <algorithm>
#include <cstring>
#include <functional>

#include <ATen/ops/full.h>
#include <ATen/ops/tensor.h>
#include <ATen/ops/zeros.h>
#include <c10/core/GradMode.h>

#include "framework/base/errors.h"
#include "framework/base/record.h"
#include "framework/base/text.h"
#include "framework/collectives/all_gather.h"
#include "framework/collectives/in_place.h"
#include "framework/collectives/message.h"
#include "framework/storage/checksum.h"
#include "framework/training/module_parameters.h"

namespace lockstep::training {

void start_alike(const std::vector<at::Tensor>& tensors, const AxisNames& axis_name) {
  const c10::AutoGradMode no_grad(false);
  for (const at::Tensor& tensor : tensors) {
    if (lacks_memory(tensor)) continue;
    // variable_data() counts versions of its own: another trainer of the parameter may go on.
    const at::Tensor values = tensor.variable_data();
    const at::Tensor message = values.contiguous();
    pbroadcast_(message, axis_name, 0);
    if (!message.is_same(values)) values.copy_(message);
  }
}

std::int64_t hash_of(const at::Tensor& tensor) {
  const at::Tensor values = collectives::as_message(tensor.detach());
  return static_cast<std::int64_t>(storage::checksum_of(collectives::bytes_of(values)));
}

bool has_same_bytes(const at::Tensor& a, const at::Tensor& b) {
  const at::Tensor values = collectives::as_message(a);
  const at::Tensor others = collectives::as_message(b);
  return values.nbytes() == 0 ||
         std::memcmp(values.data_ptr(), others.data_ptr(), values.nbytes()) == 0;
}

std::vector<std::uint64_t> numbers_of_all(std::uint64_t own, const AxisNames& axis_name) {
  const c10::AutoGradMode no_grad(false);
  const auto number = static_cast<std::int64_t>(own);
  const at::Tensor all = all_gather(at::full({}, number, at::kLong), axis_name);
  const auto* const begin = all.data_ptr<std::int64_t>();
  return {begin, begin + all.numel()};
}

std::int64_t replicas_where(bool holds, const AxisNames& axis_name) {
  const c10::AutoGradMode no_grad(false);
  const at::Tensor count = at::full({}, holds ? 1 : 0, at::kLong);
  psum_(count, axis_name);
  return count.item<std::int64_t>();
}

std::vector<std::string> texts_of_all(const std::string& own, const AxisNames& axis_name) {
  const auto size = static_cast<std::int64_t>(own.size());
  const at::Tensor sizes = all_gather(at::full({}, size, at::kLong), axis_name);
  const at::Tensor padded = at::zeros({sizes.max().item<std::int64_t>()}, at::kByte);
  std::memcpy(padded.data_ptr(), own.data(), own.size());
  const at::Tensor all = all_gather(padded, axis_name);
  std::vector<std::string> texts;
  for (std::int64_t replica = 0; replica < all.size(0); ++replica) {
    const auto* const begin = static_cast<const char*>(all.data_ptr()) + replica * all.size(1);
    texts.emplace_back(begin, begin + sizes[replica].item<std::int64_t>());
  }
  return texts;
}

std::string describe(const std::string& name, const at::Tensor& tensor) {
  return lockstep::str("'", name, "' (", join(tensor.sizes()), ") ",
                       at::toString(tensor.scalar_type()));
}

void check_same_model(const std::vector<std::string>& names, const std::vector<at::Tensor>& tensors,
                      const AxisNames& axis_name) {
  std::vector<std::string> lines;
  for (std::size_t i = 0; i < names.size(); ++i) {
    lines.push_back(describe(names[i], tensors[i]) +
                    (tensors[i].requires_grad() ? "" : ", frozen") +
                    (lacks_memory(tensors[i]) ? ", on the meta device" : ""));
  }
  check_same_model("parameter", lines, axis_name);
}

void check_same_model(const char* kind, const std::vector<std::string>& lines,
                      const AxisNames& axis_name) {
  const c10::AutoGradMode no_grad(false);
  const std::string own = encode(lines);
  const auto hash = static_cast<std::int64_t>(std::hash<std::string>{}(own));
  if (!first_difference({hash}, axis_name)) return;
  const std::vector<std::string> all = texts_of_all(own, axis_name);
  const auto lines_of = [&](std::size_t replica) {
    return decode<std::vector<std::string>>(all[replica], "a replica's model");
  };
  std::vector<std::string> first = lines_of(0);
  for (std::size_t replica = 1; replica < all.size(); ++replica) {
    std::vector<std::string> other = lines_of(replica);
    first.resize(std::max(first.size(), other.size()), "none");
    other.resize(first.size(), "none");
    const auto [line, other_line] = std::ranges::mismatch(first, other);
    if (line == first.end()) continue;
    throw ValueError(lockstep::str("the replicas have different models: ", kind, " ",
                                   line - first.begin(), " is ", *line, " on replica 0 and ",
                                   *other_line, " on replica ", replica));
  }
}

std::optional<Difference> first_difference(const std::vector<std::int64_t>& hashes,
                                           const AxisNames& axis_name, bool zero_is_none) {
  const c10::AutoGradMode no_grad(false);
  const at::Tensor all = all_gather(at::tensor(hashes), axis_name);  // (replicas, hashes)
  const auto* const values = all.data_ptr<std::int64_t>();
  for (std::size_t i = 0; i < hashes.size(); ++i) {
    const auto hash = [&](std::int64_t replica) {
      return values[replica * all.size(1) + static_cast<std::int64_t>(i)];
    };
    Difference found{i, -1, {}};
    for (std::int64_t replica = 0; replica < all.size(0); ++replica) {
      if (zero_is_none && hash(replica) == 0) continue;
      if (found.first < 0) found.first = replica;
      if (hash(replica) != hash(found.first)) found.replicas.push_back(replica);
    }
    if (!found.replicas.empty()) return found;
  }
  return std::nullopt;
}

void check_agreement(const std::vector<std::string>& names, const std::vector<at::Tensor>& tensors,
                     const AxisNames& axis_name, const char* kind) {
  const auto found = first_difference(mapped(tensors, hash_of), axis_name);
  if (!found) return;
  const bool is_one = found->replicas.size() == 1;
  throw Error(lockstep::str(kind, " '", names[found->index],
                            is_one ? "': replica " : "': replicas ", join(found->replicas),
                            is_one ? " differs" : " differ",
                            " from replica 0: the replicas have fallen apart"));
}

}  // namespace lockstep::training
