#include "framework/collectives/in_place.h"

#include <cstddef>
#include <string>

#include <ATen/ops/empty.h>
#include <ATen/ops/from_blob.h>
#include <c10/core/GradMode.h>

#include "framework/base/bytes.h"
#include "framework/base/text.h"
#include "framework/collectives/differentiable.h"
#include "framework/reduce/reduce.h"

namespace lockstep {
namespace {

using collectives::announced;
using collectives::bytes_of;
using collectives::group_text;

void check_operand(const at::Tensor& tensor, const char* what, const AxisCall& call) {
  collectives::check_leaves({tensor}, call);
  call.require(tensor.is_contiguous() && !tensor.is_neg(), what, " must be contiguous");
  call.require(!c10::GradMode::is_enabled() || !tensor.requires_grad(), what,
               " requires a gradient, and this has no derivative: use what returns "
               "its result, or c10::AutoGradMode(false)");
}

ElementType type_to_reduce(const at::Tensor& tensor, ReduceOp op, const AxisCall& call) {
  const ElementType type = collectives::element_type(tensor.scalar_type(), call);
  const std::string problem = reduce::why_not(type, op);
  call.require(problem.empty(), problem);
  return type;
}

void reduce_in_place(const AxisCall& call, const Tensor& x, ReduceOp op,
                     const ReduceOptions& options) {
  groups::ReplicaGroup& replicas = replicas_of(call, options.axis_index_groups, GroupSizes::any);
  check_operand(x, "x", call);
  const ElementType type = type_to_reduce(x, op, call);
  announced(call, replicas, {x}, group_text(options.axis_index_groups),
            [&] { replicas.all_reduce(bytes_of(x), bytes_of(x), type, op); });
}

// Throws if `part`, a tensor called `what`, overlaps `whole` and is not its slice `own`: bytes
// written to the one would be read from the other, sooner or later than they should.
void check_overlap(const char* what, const Tensor& part, const char* whole_what,
                   const Tensor& whole, int own, const AxisCall& call) {
  const auto some = bytes_of(part);
  const auto all = bytes_of(whole);
  const auto address = [](ConstBytes bytes) {
    return reinterpret_cast<std::intptr_t>(bytes.data());
  };
  const std::int64_t at = address(some) - address(all);
  const std::int64_t own_at = own * std::ssize(some);
  const bool overlap = at < std::ssize(all) && -at < std::ssize(some);
  if (some.empty() || !overlap || at == own_at) return;
  const auto itemsize = static_cast<std::int64_t>(part.itemsize());
  const char* const unit = at % itemsize == 0 ? " elements" : " bytes";
  const std::int64_t size = at % itemsize == 0 ? itemsize : 1;
  call.require(false, what, " and ", whole_what, " overlap: ", what, " begins ", at / size, unit,
               " after ", whole_what, ", and may do so only as this replica's slice of it, ",
               own_at / size, unit, " after it");
}

// Checks two tensors: one, as is_input_whole says, is as long as the others of all replicas.
void check_pair(const Tensor& output, const Tensor& input, bool is_input_whole,
                const groups::ReplicaGroup& group, const AxisCall& call) {
  const Tensor& whole = is_input_whole ? input : output;
  const Tensor& part = is_input_whole ? output : input;
  const std::int64_t replicas = group.size();
  check_operand(output, "output", call);
  check_operand(input, "input", call);
  call.require(output.scalar_type() == input.scalar_type(), "output is ",
               at::toString(output.scalar_type()), ", input ", at::toString(input.scalar_type()),
               "; they must agree");
  call.require(whole.numel() == part.numel() * replicas, "input has ", input.numel(),
               " elements, output ", output.numel(), "; one is ", replicas, " times the other");
  check_overlap(is_input_whole ? "output" : "input", part, is_input_whole ? "input" : "output",
                whole, group.rank(), call);
}

CommonZeros allocate(const AxisCall& call, at::IntArrayRef sizes, at::ScalarType dtype,
                     comm::Copies copies) {
  groups::ReplicaGroup& replicas = replicas_of(call, {}, GroupSizes::equal);
  (void)collectives::element_type(dtype, call);
  auto bytes = static_cast<std::int64_t>(c10::elementSize(dtype));
  for (const std::int64_t size : sizes) {
    call.require(size >= 0, "size ", size, " is negative");
    call.require(size == 0 || bytes <= (std::int64_t{1} << 46) / size, "the sizes are too large");
    bytes *= size;
  }
  // A tensor of that shape without memory, for the record alone.
  const Tensor like = at::empty({}, dtype).expand(sizes);
  comm::SymmetricBuffer buffer;
  announced(call, replicas, {like}, "",
            [&] { buffer = replicas.allocate(static_cast<std::size_t>(bytes), copies); });
  const auto widened = [](const auto& group) {
    return std::vector<std::int64_t>(group.begin(), group.end());
  };
  return {at::from_blob(
              buffer.own.data(), sizes, [memory = buffer.memory](void*) mutable { memory.reset(); },
              at::TensorOptions(dtype)),
          mapped(buffer.holders, widened)};
}

void scatter_into(const AxisCall& call, const Tensor& output, const Tensor& input, ReduceOp op,
                  const AxisIndexGroups& axis_index_groups) {
  groups::ReplicaGroup& replicas = replicas_of(call, axis_index_groups, GroupSizes::equal);
  check_pair(output, input, /*is_input_whole=*/true, replicas, call);
  const ElementType type = type_to_reduce(input, op, call);
  announced(call, replicas, {output, input}, group_text(axis_index_groups),
            [&] { replicas.reduce_scatter(bytes_of(input), bytes_of(output), type, op); });
}

}  // namespace

Tensor symmetric_zeros(at::IntArrayRef sizes, at::ScalarType dtype, const AxisNames& axis_name,
                       std::source_location where) {
  return allocate({"symmetric_zeros", axis_name, where}, sizes, dtype, comm::Copies::each).tensor;
}

CommonZeros common_zeros(at::IntArrayRef sizes, at::ScalarType dtype, const AxisNames& axis_name,
                         std::source_location where) {
  return allocate({"common_zeros", axis_name, where}, sizes, dtype, comm::Copies::one);
}

void barrier(const AxisNames& axis_name, const AxisIndexGroups& axis_index_groups,
             std::source_location where) {
  const AxisCall call{"barrier", axis_name, where};
  groups::ReplicaGroup& replicas = replicas_of(call, axis_index_groups, GroupSizes::any);
  announced(call, replicas, {}, group_text(axis_index_groups), [] {});  // without elements all meet
}

void pbroadcast_(const Tensor& x, const AxisNames& axis_name, std::int64_t source,
                 std::source_location where) {
  const AxisCall call{"pbroadcast_", axis_name, where};
  groups::ReplicaGroup& replicas = replicas_of(call, {}, GroupSizes::equal);
  check_operand(x, "x", call);
  call.require(source >= 0 && source < replicas.size(), "source is ", source, ", of ",
               replicas.size(), " replicas");
  announced(call, replicas, {x}, lockstep::str(", source ", source),
            [&] { replicas.broadcast(bytes_of(x), static_cast<int>(source)); });
}

void psum_(const Tensor& x, const AxisNames& axis_name, const ReduceOptions& options,
           std::source_location where) {
  reduce_in_place({"psum_", axis_name, where}, x, ReduceOp::sum, options);
}

void pmean_(const Tensor& x, const AxisNames& axis_name, const ReduceOptions& options,
            std::source_location where) {
  reduce_in_place({"pmean_", axis_name, where}, x, ReduceOp::mean, options);
}

void collectives::pmean_by(ReduceOp op, const Tensor& x, const AxisNames& axis_name,
                           std::source_location where) {
  reduce_in_place({"pmean_", axis_name, where}, x, op, {});
}

void collectives::pmean_scatter_by(ReduceOp op, const Tensor& output, const Tensor& input,
                                   const AxisNames& axis_name, std::source_location where) {
  scatter_into({"pmean_scatter_into", axis_name, where}, output, input, op, {});
}

void psum_scatter_into(const Tensor& output, const Tensor& input, const AxisNames& axis_name,
                       const AxisIndexGroups& axis_index_groups, std::source_location where) {
  scatter_into({"psum_scatter_into", axis_name, where}, output, input, ReduceOp::sum,
               axis_index_groups);
}

void pmean_scatter_into(const Tensor& output, const Tensor& input, const AxisNames& axis_name,
                        const AxisIndexGroups& axis_index_groups, std::source_location where) {
  scatter_into({"pmean_scatter_into", axis_name, where}, output, input, ReduceOp::mean,
               axis_index_groups);
}

void all_gather_into(const Tensor& output, const Tensor& input, const AxisNames& axis_name,
                     const AxisIndexGroups& axis_index_groups, std::source_location where) {
  const AxisCall call{"all_gather_into", axis_name, where};
  groups::ReplicaGroup& replicas = replicas_of(call, axis_index_groups, GroupSizes::equal);
  check_pair(output, input, /*is_input_whole=*/false, replicas, call);
  announced(call, replicas, {output, input}, group_text(axis_index_groups),
            [&] { replicas.all_gather(bytes_of(input), bytes_of(output)); });
}

}  // namespace lockstep
