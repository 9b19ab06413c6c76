#include "framework/collectives/ragged_all_to_all.h"

#include <algorithm>
#include <array>
#include <cstddef>
#include <cstdint>
#include <limits>
#include <memory>
#include <numeric>
#include <string>
#include <utility>

#include <ATen/ops/empty.h>
#include <ATen/ops/zeros.h>

#include "framework/base/text.h"
#include "framework/collectives/differentiable.h"
#include "framework/collectives/message.h"
#include "framework/collectives/ragged_route.h"
#include "framework/collectives/record.h"
#include "framework/reduce/canonical_order.h"

namespace lockstep::collectives_detail {
namespace {

using Pieces = std::vector<std::vector<Rows>>;  // [replica]

// How the call found its replicas: its backward does so again.
struct RaggedCall {
  AxisNames axis_name;
  RaggedAllToAllOptions options;
  std::source_location where;
};

// For people; it is empty without groups.
std::string detail_of(const RaggedCall& ragged) {
  const std::string groups = group_text(ragged.options.axis_index_groups);
  return groups.empty() ? groups : groups.substr(2);  // without ", "
}

// A piece of a leaf. The offset of an empty one may be anything.
Tensor rows_of(const Tensor& leaf, const Rows& rows) {
  return leaf.narrow(0, rows.size == 0 ? 0 : rows.offset, rows.size);
}

std::vector<std::int64_t> sizes_of(const Tensor& leaf, const Rows& rows) {
  auto sizes = leaf.sizes().vec();
  sizes[0] = rows.size;
  return sizes;
}

// Calls visit(leaf's index, piece, offset in the message) for the pieces of one replica in the
// order in which they lie in a message. Returns where the message's next part begins.
template <typename Visit>
std::int64_t for_each_piece(const Leaves& leaves, const std::vector<std::size_t>& indices,
                            const std::vector<Rows>& pieces, std::int64_t offset,
                            const Visit& visit) {
  for (const std::size_t i : indices) {
    std::int64_t row = 1;
    for (const std::int64_t length : leaves[i].sizes().slice(1)) row *= length;
    for (const Rows& rows : pieces) {
      visit(i, rows, offset);
      offset += rows.size * row;
    }
  }
  return offset;
}

std::vector<std::size_t> bytes_by_replica(const Leaves& leaves,
                                          const std::vector<std::size_t>& indices,
                                          const Pieces& pieces) {
  std::vector<std::size_t> bytes;
  for (const auto& list : pieces) {
    const std::int64_t elements = for_each_piece(leaves, indices, list, 0, [](auto&&...) {});
    bytes.push_back(static_cast<std::size_t>(elements) * leaves[indices[0]].itemsize());
  }
  return bytes;
}

// Rows as they came: a part of a message, and where they belong.
struct Arrival {
  Rows rows;
  Tensor values;
};
using Arrivals = std::vector<std::vector<Arrival>>;  // [sender]

Tensor message_of(const Leaves& leaves, const std::vector<std::size_t>& indices,
                  const std::vector<std::size_t>& bytes) {
  const Tensor& first = leaves[indices[0]];
  const std::size_t total = std::accumulate(bytes.begin(), bytes.end(), std::size_t{0});
  return at::empty({static_cast<std::int64_t>(total / first.itemsize())}, first.options());
}

// Sends the rows `sent` of each leaf, one message a dtype, and returns for each leaf what came: the
// rows `received` of a leaf that is shaped as in `like`.
std::vector<Arrivals> exchange(const AxisCall& call, Communicator& replicas, const Leaves& leaves,
                               const Pieces& sent, const Leaves& like, const Pieces& received) {
  std::vector<Arrivals> arrivals(leaves.size(), Arrivals(received.size()));
  for (const auto& indices : by_dtype(leaves)) {
    const auto send_bytes = bytes_by_replica(leaves, indices, sent);
    const auto recv_bytes = bytes_by_replica(like, indices, received);
    const Tensor out = message_of(leaves, indices, send_bytes);
    const Tensor in = message_of(leaves, indices, recv_bytes);
    std::int64_t offset = 0;
    for (const auto& pieces : sent) {
      offset = for_each_piece(
          leaves, indices, pieces, offset,
          [&](std::size_t i, const Rows& rows, std::int64_t start) {
            part_of(out, start, sizes_of(leaves[i], rows)).copy_(rows_of(leaves[i], rows));
          });
    }
    communicate(call,
                [&] { replicas.all_to_all(bytes_of(out), send_bytes, bytes_of(in), recv_bytes); });
    offset = 0;
    for (std::size_t from = 0; from < received.size(); ++from) {
      offset = for_each_piece(
          like, indices, received[from], offset,
          [&](std::size_t i, const Rows& rows, std::int64_t start) {
            arrivals[i][from].push_back({rows, part_of(in, start, sizes_of(like[i], rows))});
          });
    }
  }
  return arrivals;
}

void write(const Arrivals& arrivals, const Tensor& result) {
  for (const auto& from_one : arrivals) {
    for (const auto& [rows, values] : from_one) rows_of(result, rows).copy_(values);
  }
}

// Copies of `outputs` with what the others send written into them.
Leaves written(const AxisCall& call, Communicator& replicas, const RaggedRoute& route,
               const Leaves& operands, const Leaves& outputs) {
  const auto arrivals = exchange(call, replicas, operands, route.sent, outputs, route.received);
  Leaves results;
  for (std::size_t i = 0; i < outputs.size(); ++i) {
    results.push_back(at::empty(outputs[i].sizes(), outputs[i].options()).copy_(outputs[i]));
    write(arrivals[i], results[i]);
  }
  return results;
}

// The sum of what these replicas sent, zeros elsewhere.
Tensor sum_of(const Arrivals& arrivals, Subtree replicas, at::IntArrayRef sizes,
              const at::TensorOptions& options) {
  if (replicas.count == 1) {
    const Tensor sum = at::zeros(sizes, options);
    const auto& sent = arrivals[static_cast<std::size_t>(replicas.first)];
    for (const auto& [rows, values] : sent) rows_of(sum, rows).add_(values);
    return sum;
  }
  return sum_of(arrivals, replicas.left(), sizes, options)
      .add_(sum_of(arrivals, replicas.right(), sizes, options));
}

// The transpose: rows that were received go back to where they came from, in leaves shaped as
// `operands`, zeros elsewhere. The gradients of a row that was sent more than once add up.
Leaves returned(const AxisCall& call, Communicator& replicas, const RaggedRoute& route,
                const Leaves& gradients, const Leaves& operands) {
  const auto arrivals = exchange(call, replicas, gradients, route.received, operands, route.sent);
  const bool overlap = any_overlap(route.sent);
  Leaves results;
  for (std::size_t i = 0; i < operands.size(); ++i) {
    const auto type = gradients[i].scalar_type();
    const auto options = gradients[i].options();
    if (overlap) {
      const bool half = type == at::kHalf || type == at::kBFloat16;
      const auto wide = half ? options.dtype(at::kFloat) : options;
      const Tensor sum = sum_of(arrivals[i], {0, static_cast<std::int64_t>(arrivals[i].size())},
                                operands[i].sizes(), wide);
      results.push_back(sum.to(type));
    } else {
      results.push_back(at::zeros(operands[i].sizes(), options));
      write(arrivals[i], results[i]);
    }
  }
  return results;
}

// Zeros where rows were written.
Leaves untouched(const Leaves& gradients, const RaggedRoute& route) {
  Leaves results;
  for (const Tensor& gradient : gradients) {
    std::vector<std::int64_t> sizes(static_cast<std::size_t>(gradient.dim()), 1);
    sizes[0] = gradient.size(0);
    const Tensor touched = at::zeros(sizes, at::kBool);
    for (const auto& pieces : route.received) {
      for (const Rows& rows : pieces) rows_of(touched, rows).fill_(true);
    }
    results.push_back(gradient.masked_fill(touched, 0));
  }
  return results;
}

// Zeros of the same shapes and dtypes that take no memory.
Leaves shapes_of(const Leaves& leaves) {
  Leaves shapes;
  for (const Tensor& leaf : leaves) {
    shapes.push_back(at::zeros({1}, leaf.options()).expand(leaf.sizes()));
  }
  return shapes;
}

using Route = std::shared_ptr<const RaggedRoute>;

Leaves give_back(const RaggedCall& ragged, const Route& route, const Leaves& gradients,
                 const Leaves& operands);

Leaves move_rows(const RaggedCall& ragged, const Route& route, const Leaves& operands,
                 const Leaves& outputs) {
  const AxisCall call{"ragged_all_to_all", ragged.axis_name, ragged.where};
  auto& replicas = replicas_of(call, ragged.options.axis_index_groups, GroupSizes::equal);
  Leaves both = operands;
  both.insert(both.end(), outputs.begin(), outputs.end());
  return differentiable(
      call, replicas, both, detail_of(ragged),
      [&](const Leaves& leaves) {
        const auto middle = leaves.begin() + static_cast<std::ptrdiff_t>(operands.size());
        return written(call, replicas, *route, Leaves(leaves.begin(), middle),
                       Leaves(middle, leaves.end()));
      },
      [&](const Leaves&) -> BackwardRule {
        const Leaves shapes = shapes_of(operands);
        return [=](const Leaves& gradients) {
          Leaves back = give_back(ragged, route, gradients, shapes);
          const Leaves rest = untouched(gradients, *route);
          back.insert(back.end(), rest.begin(), rest.end());
          return back;
        };
      },
      ResultAxes::as_all);
}

Leaves give_back(const RaggedCall& ragged, const Route& route, const Leaves& gradients,
                 const Leaves& operands) {
  const AxisCall call{"the transpose of ragged_all_to_all", ragged.axis_name, ragged.where};
  auto& replicas = replicas_of(call, ragged.options.axis_index_groups, GroupSizes::equal);
  return differentiable(
      call, replicas, gradients, detail_of(ragged),
      [&](const Leaves& leaves) { return returned(call, replicas, *route, leaves, operands); },
      [&](const Leaves&) -> BackwardRule {
        const Leaves zeros = shapes_of(gradients);
        return [=](const Leaves& second) { return move_rows(ragged, route, second, zeros); };
      },
      ResultAxes::as_all);
}

void check_tables(const AxisCall& call, const RaggedTables& tables, std::int64_t replicas) {
  const std::array<std::pair<const char*, const Tensor&>, 4> all{
      {{"input_offsets", tables.input_offsets},
       {"send_sizes", tables.send_sizes},
       {"output_offsets", tables.output_offsets},
       {"recv_sizes", tables.recv_sizes}}};
  for (const auto& [name, table] : all) {
    const auto refuse = [&](const std::string& what) {
      throw ValueError(lockstep::str(call.text(), ": ", name, " ", what));
    };
    if (!table.defined() || !table.device().is_cpu() || table.layout() != at::kStrided) {
      refuse("must be a dense tensor on the CPU");
    }
    if (!at::isIntegralType(table.scalar_type(), /*includeBool=*/false)) {
      refuse(lockstep::str("has dtype ", at::toString(table.scalar_type()),
                           "; it must be an integer type"));
    }
    if (table.dim() != 1 || table.numel() == 0 || table.numel() % replicas != 0) {
      refuse(lockstep::str(
          "has shape ", table.sizes(),
          "; it must have one dimension, of the group's size or a multiple of it, ", replicas));
    }
    if (table.numel() != tables.input_offsets.numel()) {
      refuse(lockstep::str("has length ", table.numel(), ", input_offsets has ",
                           tables.input_offsets.numel(), "; they must agree"));
    }
  }
}

void check_pairs(const AxisCall& call, const Leaves& operands, const Leaves& outputs) {
  for (std::size_t i = 0; i < operands.size(); ++i) {
    const Tensor& operand = operands[i];
    const Tensor& output = outputs[i];
    const auto text = [&](const Tensor& leaf) {
      return lockstep::str(at::toString(leaf.scalar_type()), " ", leaf.sizes());
    };
    if (operand.dim() == 0 || operand.dim() != output.dim() ||
        operand.sizes().slice(1) != output.sizes().slice(1) ||
        operand.scalar_type() != output.scalar_type()) {
      throw ValueError(lockstep::str(
          call.text(), ": leaf ", i, " of operand is ", text(operand), ", of output ", text(output),
          "; they must have one dtype and the same shape but for dimension 0"));
    }
  }
}

std::int64_t shortest(const Leaves& leaves) {
  std::int64_t length = std::numeric_limits<std::int64_t>::max();
  for (const Tensor& leaf : leaves) length = std::min(length, leaf.size(0));
  return length;
}

// The group's members as indices along the axis.
std::vector<std::int64_t> names_of_members(const RaggedCall& ragged, std::int64_t size) {
  const std::int64_t index = place_of({"ragged_all_to_all", ragged.axis_name, ragged.where}).index;
  for (const auto& group : ragged.options.axis_index_groups) {
    if (std::find(group.begin(), group.end(), index) != group.end()) return group;
  }
  std::vector<std::int64_t> all;
  for (std::int64_t i = 0; i < size; ++i) all.push_back(i);
  return all;
}

// Every replica sees the tables of all and checks all of them: they agree on whether to go on. The
// lengths, against which it checks, are all replicas', being part of the announced call.
RaggedRoute exchanged_route(const AxisCall& call, const RaggedCall& ragged,
                            const RaggedTables& tables, std::int64_t operand_rows,
                            std::int64_t output_rows) {
  auto& replicas = replicas_of(call, ragged.options.axis_index_groups, GroupSizes::equal);
  const std::int64_t slots = tables.input_offsets.numel();
  const Tensor own = at::empty({4 * slots}, at::kLong);
  own.narrow(0, 0, slots).copy_(tables.input_offsets);
  own.narrow(0, slots, slots).copy_(tables.send_sizes);
  own.narrow(0, 2 * slots, slots).copy_(tables.output_offsets);
  own.narrow(0, 3 * slots, slots).copy_(tables.recv_sizes);
  const Leaves all = differentiable(
      call, replicas, {own},
      lockstep::str("offsets and sizes, operand of ", operand_rows, " rows, output of ",
                    output_rows, group_text(ragged.options.axis_index_groups)),
      [&](const Leaves& leaves) -> Leaves {
        const Tensor gathered = at::empty({replicas.size(), leaves[0].numel()}, at::kLong);
        communicate(call, [&] { replicas.all_gather(bytes_of(leaves[0]), bytes_of(gathered)); });
        return {gathered};
      },
      // Never asked for: integers have no derivative.
      [](const Leaves&) { return BackwardRule(); });
  const RaggedPlan plan(all[0], operand_rows, output_rows,
                        names_of_members(ragged, replicas.size()));
  plan.check(call);
  return plan.route_of(replicas.rank());
}

}  // namespace

std::vector<Tensor> ragged_all_to_all_leaves(const std::vector<Tensor>& operands,
                                             const std::vector<Tensor>& outputs,
                                             const RaggedTables& tables, const AxisNames& axis_name,
                                             const RaggedAllToAllOptions& options,
                                             std::source_location where) {
  const AxisCall call{"ragged_all_to_all", axis_name, where};
  const std::int64_t size = replicas_of(call, options.axis_index_groups, GroupSizes::equal).size();
  check_leaves(operands, call);
  check_leaves(outputs, call);
  check_pairs(call, operands, outputs);
  check_tables(call, tables, size);
  const RaggedCall ragged{axis_name, options, where};
  const Route route = std::make_shared<const RaggedRoute>(
      exchanged_route(call, ragged, tables, shortest(operands), shortest(outputs)));
  if (const Variance* const variance = current_variance()) {
    // Where rows go is read from the tables: it is in all results.
    AxisSet axes = 0;
    for (const Tensor& table :
         {tables.input_offsets, tables.send_sizes, tables.output_offsets, tables.recv_sizes}) {
      axes |= variance->of(table);
    }
    return move_rows(ragged, route, varying_over(axes, operands), varying_over(axes, outputs));
  }
  return move_rows(ragged, route, operands, outputs);
}

}  // namespace lockstep::collectives_detail
