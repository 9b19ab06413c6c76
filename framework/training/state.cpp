#include "framework/training/state.h"

#include <ATen/ops/zeros.h>
#include <c10/core/GradMode.h>

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

bool StateArchive::part(const StatePiece& piece, const Range& saved) const {
  if (source_ != nullptr) return source_->read(piece);
  (*visit_)({piece.name, piece.shape, piece.offset + saved.offset,
             piece.values.narrow(0, saved.offset, saved.size)});
  return true;
}

void StateArchive::alike(const std::string& name, const at::Tensor& tensor,
                         const AxisNames& axis_name) const {
  all(name, tensor, shard(tensor.numel(), axis_size(axis_name), axis_index(axis_name)));
}

void StateArchive::number(const std::string& name, std::int64_t& number, bool saves) const {
  if (!restores() && !saves) return;
  const at::Tensor value = at::zeros({}, at::kLong).fill_(number);
  whole(name, value);
  number = value.item<std::int64_t>();
}

void StateArchive::all(const std::string& name, const at::Tensor& tensor,
                       const Range& saved) const {
  const c10::AutoGradMode no_grad(false);
  const at::Tensor values = tensor.detach().contiguous().view({-1});
  const bool is_restored = part({name, tensor.sizes().vec(), 0, values}, saved) && restores();
  if (is_restored && !tensor.is_contiguous()) tensor.copy_(values.view(tensor.sizes()));
}

}  // namespace training
}  // namespace lockstep
