#include "framework/training/state.h"

#include <ATen/ops/zeros.h>
#include <c10/core/GradMode.h>

#include "framework/base/range.h"
#include "framework/collectives/axis_index.h"

namespace lockstep {
namespace {

// Another source's tensors whose names begin with a prefix, without it.
class PrefixedSource final : public StateSource {
 public:
  PrefixedSource(const StateSource& source, const std::string& prefix)
      : source_(source), prefix_(prefix) {}

  [[nodiscard]] bool has(const std::string& name) const override {
    return source_.has(prefix_ + name);
  }
  bool read(const StatePiece& piece) const override {
    return source_.read({prefix_ + piece.name, piece.shape, piece.offset, piece.values});
  }

 private:
  const StateSource& source_;
  const std::string& prefix_;
};

}  // namespace

void NamedTraining::visit_state(const VisitState& visit, std::source_location where) {
  training_.visit_state(
      [&](const StatePiece& piece) {
        visit({prefix_ + piece.name, piece.shape, piece.offset, piece.values});
      },
      where);
}

void NamedTraining::restore_state(const StateSource& source, std::source_location where) {
  training_.restore_state(PrefixedSource(source, prefix_), where);
}

namespace training {
namespace {

at::Tensor flat(const at::Tensor& tensor) {
  return tensor.detach().contiguous().view({-1});
}

at::Tensor as_tensor(std::int64_t number) {
  return at::zeros({}, at::kLong).fill_(number);
}

}  // namespace

void visit_shard(const std::string& name, const at::Tensor& tensor, const AxisNames& axis_name,
                 const VisitState& visit) {
  const Range own = shard(tensor.numel(), axis_size(axis_name), axis_index(axis_name));
  visit({name, tensor.sizes().vec(), own.offset, flat(tensor).narrow(0, own.offset, own.size)});
}

void visit_whole(const std::string& name, const at::Tensor& tensor, const VisitState& visit) {
  visit({name, tensor.sizes().vec(), 0, flat(tensor)});
}

bool restore_whole(const std::string& name, const at::Tensor& tensor, const StateSource& source) {
  const c10::AutoGradMode no_grad(false);
  const at::Tensor values = flat(tensor);
  if (!source.read({name, tensor.sizes().vec(), 0, values})) return false;
  if (!tensor.is_contiguous()) tensor.copy_(values.view(tensor.sizes()));
  return true;
}

void visit_number(const std::string& name, std::int64_t number, const VisitState& visit) {
  visit_whole(name, as_tensor(number), visit);
}

void restore_number(const std::string& name, std::int64_t& number, const StateSource& source) {
  const at::Tensor value = as_tensor(number);
  if (restore_whole(name, value, source)) number = value.item<std::int64_t>();
}

}  // namespace training
}  // namespace lockstep
