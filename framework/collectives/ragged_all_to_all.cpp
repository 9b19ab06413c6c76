#include "framework/collectives/ragged_all_to_all.h"

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <limits>
#include <memory>
#include <optional>
#include <utility>
#include <vector>

#include <ATen/ops/cat.h>
#include <ATen/ops/empty.h>
#include <ATen/ops/zeros.h>
#include <c10/util/accumulate.h>

#include "framework/base/range.h"
#include "framework/base/text.h"
#include "framework/collectives/differentiable.h"
#include "framework/reduce/canonical_order.h"

namespace lockstep::collectives {
namespace {

// Pieces of rows, a leaf's slices along dimension 0: as many for each replica, in their order.
using Pieces = std::vector<Range>;

// An empty piece may have any offset.
bool is_inside(const Range& rows, std::int64_t length) {
  return rows.size == 0 ||
         (rows.offset >= 0 && rows.size <= length && rows.offset <= length - rows.size);
}

// Returns the first two pieces, in the order of their offsets, that have a row in common.
std::optional<std::pair<std::size_t, std::size_t>> find_overlap(const Pieces& pieces) {
  auto order = consecutive(std::size_t{0}, pieces.size());
  std::erase_if(order, [&](std::size_t i) { return pieces[i].size <= 0; });
  std::ranges::stable_sort(order, {}, [&](std::size_t i) { return pieces[i].offset; });
  const auto found = std::ranges::adjacent_find(order, [&](std::size_t before, std::size_t after) {
    return pieces[before].end() > pieces[after].offset;
  });
  if (found == order.end()) return std::nullopt;
  return std::pair(*found, *std::next(found));
}

struct Route {
  Pieces sent;      // for each receiver: rows of the own operand
  Pieces received;  // for each sender: rows of the own result
};
using SharedRoute = std::shared_ptr<const Route>;

// The tables' places in a row.
enum Table : std::int64_t { kInputOffsets, kSendSizes, kOutputOffsets, kRecvSizes, kTables };
constexpr const char* kTableNames[] = {"input_offsets", "send_sizes", "output_offsets",
                                       "recv_sizes"};

// The arguments of all replicas.
struct Plan {
  const AxisCall& call;
  Tensor tables;              // int64, contiguous: a row a replica, which has its tables end to end
  std::int64_t operand_rows;  // of every replica
  std::int64_t output_rows;
  std::vector<std::int64_t> names;  // the replicas' indices along the axis, for messages

  const std::int64_t* values = tables.data_ptr<std::int64_t>();
  std::int64_t replicas = tables.size(0);
  std::int64_t slots = tables.size(1) / kTables;
  std::int64_t pieces = slots / replicas;  // a pair of replicas

  [[nodiscard]] std::int64_t at(std::int64_t replica, Table table, std::int64_t slot) const {
    return values[(replica * kTables + table) * slots + slot];
  }
  // Returns the rows of piece `index` from `sender` to `receiver`, by the sender's table `offsets`.
  [[nodiscard]] Range piece(std::int64_t sender, std::int64_t receiver, std::int64_t index,
                            Table offsets) const {
    const std::int64_t slot = receiver * pieces + index;
    return {at(sender, offsets, slot), at(sender, kSendSizes, slot)};
  }

  void check_piece(std::int64_t sender, std::int64_t receiver, std::int64_t index) const {
    const std::int64_t slot = receiver * pieces + index;
    const std::int64_t slot_there = sender * pieces + index;
    const Range input = piece(sender, receiver, index, kInputOffsets);
    const Range output = piece(sender, receiver, index, kOutputOffsets);
    const std::int64_t expected = at(receiver, kRecvSizes, slot_there);
    const std::int64_t from = names[static_cast<std::size_t>(sender)];
    const std::int64_t to = names[static_cast<std::size_t>(receiver)];
    call.require(input.size >= 0, "replica ", from, "'s send_sizes[", slot, "] is ", input.size,
                 "; it must not be negative");
    const auto check = [&](bool holds, const auto&... rest) {
      if (holds) return;
      throw ValueError(lockstep::str(call, ": replica ", from, " sends replica ", to, " ",
                                     counted(input.size, "row"), rest...));
    };
    check(input.size == expected, " (send_sizes[", slot, "]), but replica ", to, " expects ",
          expected, " from replica ", from, " (recv_sizes[", slot_there, "])");
    check(is_inside(input, operand_rows), " from row ", input.offset, " on (input_offsets[", slot,
          "]), but its operand has ", operand_rows);
    check(is_inside(output, output_rows), " for row ", output.offset, " on (output_offsets[", slot,
          "]), but the output of replica ", to, " has ", output_rows);
  }

  [[nodiscard]] Pieces received_by(std::int64_t receiver) const {
    Pieces received;
    for (std::int64_t sender = 0; sender < replicas; ++sender) {
      for (std::int64_t index = 0; index < pieces; ++index) {
        received.push_back(piece(sender, receiver, index, kOutputOffsets));
      }
    }
    return received;
  }

  void check_overlaps(std::int64_t receiver) const {
    const Pieces received = received_by(receiver);
    const auto overlap = find_overlap(received);
    if (!overlap) return;
    const auto text_of = [&](std::size_t i) {
      return lockstep::str("from replica ", names[i / static_cast<std::size_t>(pieces)], " (",
                           received[i].offset, " to ", received[i].end() - 1, ")");
    };
    throw ValueError(lockstep::str(call, ": rows ", text_of(overlap->first), " and ",
                                   text_of(overlap->second), " overlap in the output of replica ",
                                   names[static_cast<std::size_t>(receiver)]));
  }

  // Throws ValueError if anything does not fit, on every replica alike: all have all tables.
  void check() const {
    for (std::int64_t sender = 0; sender < replicas; ++sender) {
      for (std::int64_t receiver = 0; receiver < replicas; ++receiver) {
        for (std::int64_t index = 0; index < pieces; ++index) check_piece(sender, receiver, index);
      }
    }
    for (std::int64_t receiver = 0; receiver < replicas; ++receiver) check_overlaps(receiver);
  }

  [[nodiscard]] Route route_of(std::int64_t replica) const {
    Pieces sent;
    for (std::int64_t slot = 0; slot < slots; ++slot) {
      sent.push_back({at(replica, kInputOffsets, slot), at(replica, kSendSizes, slot)});
    }
    return {std::move(sent), received_by(replica)};
  }
};

// Returns a piece of a leaf. An empty piece may have any offset.
Tensor rows_of(const Tensor& leaf, const Range& rows) {
  return leaf.narrow(0, rows.size == 0 ? 0 : rows.offset, rows.size);
}

// Calls visit(replica, leaf's index, piece) in the order in which pieces lie in a message.
template <typename Visit>
void for_each_piece(const Pieces& pieces, std::size_t replicas,
                    const std::vector<std::size_t>& indices, const Visit& visit) {
  const std::size_t each = pieces.size() / replicas;
  for (std::size_t replica = 0; replica < replicas; ++replica) {
    for (const std::size_t i : indices) {
      for (std::size_t p = 0; p < each; ++p) visit(replica, i, pieces[replica * each + p]);
    }
  }
}

// Rows that have come, as a part of a message, and their place.
struct Arrival {
  Range rows;
  Tensor values;
};
using Arrivals = std::vector<std::vector<Arrival>>;  // [sender]

// Sends each leaf's rows `sent`, a message a dtype. Returns rows `received`, shaped as in `like`.
std::vector<Arrivals> exchange(comm::Communicator& replicas, const Leaves& leaves,
                               const Pieces& sent, const Leaves& like, const Pieces& received) {
  const auto size = static_cast<std::size_t>(replicas.size());
  std::vector<Arrivals> arrivals(leaves.size(), Arrivals(size));
  for (const auto& indices : by_dtype(leaves)) {
    Leaves parts;
    std::vector<std::size_t> send_bytes(size);
    std::vector<std::size_t> recv_bytes(size);
    for_each_piece(sent, size, indices, [&](std::size_t to, std::size_t i, Range rows) {
      parts.push_back(rows_of(leaves[i], rows).flatten());
      send_bytes[to] += parts.back().nbytes();
    });
    std::int64_t total = 0;
    for_each_piece(received, size, indices, [&](std::size_t from, std::size_t i, Range rows) {
      const auto elements = rows.size * c10::multiply_integers(like[i].sizes().slice(1));
      recv_bytes[from] += static_cast<std::size_t>(elements) * leaves[i].itemsize();
      total += elements;
    });
    const Tensor out = at::cat(parts);
    const Tensor in = at::empty({total}, out.options());
    replicas.all_to_all(bytes_of(out), send_bytes, bytes_of(in), recv_bytes);
    std::int64_t offset = 0;
    for_each_piece(received, size, indices, [&](std::size_t from, std::size_t i, Range rows) {
      auto sizes = like[i].sizes().vec();
      sizes[0] = rows.size;
      arrivals[i][from].push_back({rows, part_of(in, offset, sizes)});
      offset += arrivals[i][from].back().values.numel();
    });
  }
  return arrivals;
}

void write(const Arrivals& arrivals, const Tensor& result) {
  for (const auto& from_one : arrivals) {
    for (const auto& [rows, values] : from_one) rows_of(result, rows).copy_(values);
  }
}

// Returns copies of `outputs` with the rows that the others send written into them.
Leaves written(comm::Communicator& replicas, const Route& route, const Leaves& operands,
               const Leaves& outputs) {
  const auto arrivals = exchange(replicas, operands, route.sent, outputs, route.received);
  Leaves results;
  for (std::size_t i = 0; i < outputs.size(); ++i) {
    results.push_back(at::empty(outputs[i].sizes(), outputs[i].options()).copy_(outputs[i]));
    write(arrivals[i], results[i]);
  }
  return results;
}

// Returns the sum of the rows that these replicas sent, zeros elsewhere.
Tensor sum_of(const Arrivals& arrivals, reduce::Subtree replicas, at::IntArrayRef sizes,
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
Leaves returned(comm::Communicator& replicas, const Route& route, const Leaves& gradients,
                const Leaves& operands) {
  const auto arrivals = exchange(replicas, gradients, route.received, operands, route.sent);
  const bool overlap = find_overlap(route.sent).has_value();
  Leaves results;
  for (std::size_t i = 0; i < operands.size(); ++i) {
    const auto type = gradients[i].scalar_type();
    const auto options = gradients[i].options();
    if (overlap) {
      const bool half = type == at::kHalf || type == at::kBFloat16;
      const auto wide = half ? options.dtype(at::kFloat) : options;
      const Tensor sum =
          sum_of(arrivals[i], {0, std::ssize(arrivals[i])}, operands[i].sizes(), wide);
      results.push_back(sum.to(type));
    } else {
      results.push_back(at::zeros(operands[i].sizes(), options));
      write(arrivals[i], results[i]);
    }
  }
  return results;
}

// Returns the gradients with zeros where rows were written.
Leaves untouched(const Leaves& gradients, const Route& route) {
  Leaves results;
  for (const Tensor& gradient : gradients) {
    std::vector<std::int64_t> sizes(static_cast<std::size_t>(gradient.dim()), 1);
    sizes[0] = gradient.size(0);
    const Tensor touched = at::zeros(sizes, at::kBool);
    for (const Range& rows : route.received) rows_of(touched, rows).fill_(true);
    results.push_back(gradient.masked_fill(touched, 0));
  }
  return results;
}

// Returns zeros of the same shapes and dtypes that take no memory.
Leaves shapes_of(const Leaves& leaves) {
  return mapped(leaves, [](const Tensor& leaf) {
    return at::zeros({1}, leaf.options()).expand(leaf.sizes());
  });
}

Leaves give_back(const AxisCall& call, const AxisIndexGroups& groups, const SharedRoute& route,
                 const Leaves& gradients, const Leaves& operands);

Leaves move_rows(const AxisCall& call, const AxisIndexGroups& groups, const SharedRoute& route,
                 const Leaves& operands, const Leaves& outputs) {
  auto& replicas = replicas_of(call, groups, GroupSizes::equal);
  Leaves both = operands;
  both.insert(both.end(), outputs.begin(), outputs.end());
  return differentiable(
      call, replicas, both, group_text(groups),
      [&](const Leaves& leaves) {
        const auto middle = leaves.begin() + std::ssize(operands);
        return written(replicas, *route, Leaves(leaves.begin(), middle),
                       Leaves(middle, leaves.end()));
      },
      [&](const Leaves&) -> BackwardRule {
        const Leaves shapes = shapes_of(operands);
        return [=](const Leaves& gradients) {
          Leaves back = give_back(call.as("the transpose of ragged_all_to_all"), groups, route,
                                  gradients, shapes);
          const Leaves rest = untouched(gradients, *route);
          back.insert(back.end(), rest.begin(), rest.end());
          return back;
        };
      },
      ResultAxes::as_all);
}

Leaves give_back(const AxisCall& call, const AxisIndexGroups& groups, const SharedRoute& route,
                 const Leaves& gradients, const Leaves& operands) {
  auto& replicas = replicas_of(call, groups, GroupSizes::equal);
  return differentiable(
      call, replicas, gradients, group_text(groups),
      [&](const Leaves& leaves) { return returned(replicas, *route, leaves, operands); },
      [&](const Leaves&) -> BackwardRule {
        const Leaves zeros = shapes_of(gradients);
        return [=](const Leaves& second) {
          return move_rows(call.as("ragged_all_to_all"), groups, route, second, zeros);
        };
      },
      ResultAxes::as_all);
}

void check_tables(const AxisCall& call, const RaggedTables& tables, std::int64_t replicas) {
  for (std::size_t t = 0; t < tables.size(); ++t) {
    const Tensor& table = tables[t];
    const char* const name = kTableNames[t];
    call.require(table.defined() && table.device().is_cpu() && table.layout() == at::kStrided, name,
                 " must be a dense tensor on the CPU");
    call.require(at::isIntegralType(table.scalar_type(), /*includeBool=*/false), name,
                 " has dtype ", at::toString(table.scalar_type()), "; it must be an integer type");
    call.require(table.dim() == 1 && table.numel() > 0 && table.numel() % replicas == 0, name,
                 " has shape ", table.sizes(),
                 "; it must have one dimension, of the group's size or a multiple of it, ",
                 replicas);
    call.require(table.numel() == tables[0].numel(), name, " has length ", table.numel(),
                 ", input_offsets has ", tables[0].numel(), "; they must agree");
  }
}

void check_pairs(const AxisCall& call, const Leaves& operands, const Leaves& outputs) {
  for (std::size_t i = 0; i < operands.size(); ++i) {
    const Tensor& operand = operands[i];
    const Tensor& output = outputs[i];
    call.require(operand.dim() > 0 && operand.dim() == output.dim() &&
                     operand.sizes().slice(1) == output.sizes().slice(1) &&
                     operand.scalar_type() == output.scalar_type(),
                 LeafName{i}, " of operand is ", at::toString(operand.scalar_type()), " ",
                 operand.sizes(), ", of output ", at::toString(output.scalar_type()), " ",
                 output.sizes(),
                 "; they must have one dtype and the same shape but for dimension 0");
  }
}

std::int64_t shortest(const Leaves& leaves) {
  std::int64_t length = std::numeric_limits<std::int64_t>::max();
  for (const Tensor& leaf : leaves) length = std::min(length, leaf.size(0));
  return length;
}

// Returns the group's members as indices along the axis.
std::vector<std::int64_t> names_of_members(const AxisCall& call, const AxisIndexGroups& groups,
                                           std::int64_t size) {
  const std::int64_t index = axis_index_of(call).index;
  for (const auto& group : groups) {
    if (std::find(group.begin(), group.end(), index) != group.end()) return group;
  }
  return consecutive(std::int64_t{0}, size);
}

// Every replica checks the tables of all, so that they agree whether to go on. The lengths in these
// checks are the same on all replicas, being part of the announced call.
Route exchanged_route(const AxisCall& call, const AxisIndexGroups& groups,
                      const RaggedTables& tables, std::int64_t operand_rows,
                      std::int64_t output_rows) {
  auto& replicas = replicas_of(call, groups, GroupSizes::equal);
  const Leaves own = mapped(tables, [](const Tensor& table) { return table.to(at::kLong); });
  const Leaves all = differentiable(
      call, replicas, {at::cat(own)},
      lockstep::str("offsets and sizes, operand of ", operand_rows, " rows, output of ",
                    output_rows, group_text(groups)),
      [&](const Leaves& leaves) -> Leaves {
        const Tensor gathered = at::empty({replicas.size(), leaves[0].numel()}, at::kLong);
        replicas.all_gather(bytes_of(leaves[0]), bytes_of(gathered));
        return {gathered};
      },
      nullptr);  // never asked for: integers have no derivative
  const Plan plan{call, all[0], operand_rows, output_rows,
                  names_of_members(call, groups, replicas.size())};
  plan.check();
  return plan.route_of(replicas.rank());
}

}  // namespace

Leaves ragged_all_to_all_leaves(const AxisCall& call, const Leaves& operands, const Leaves& outputs,
                                const RaggedTables& tables, const RaggedAllToAllOptions& options) {
  const AxisIndexGroups& groups = options.axis_index_groups;
  const std::int64_t size = replicas_of(call, groups, GroupSizes::equal).size();
  check_leaves(operands, call);
  check_leaves(outputs, call);
  check_pairs(call, operands, outputs);
  check_tables(call, tables, size);
  const auto route = std::make_shared<const Route>(
      exchanged_route(call, groups, tables, shortest(operands), shortest(outputs)));
  const tree::Variance* const variance = tree::current_variance();
  if (variance == nullptr) return move_rows(call, groups, route, operands, outputs);
  // The tables say where rows go. So results vary over the axes of the tables, too.
  tree::AxisSet axes = 0;
  for (const Tensor& table : tables) axes |= variance->of(table);
  return move_rows(call, groups, route, varying_over(axes, operands), varying_over(axes, outputs));
}

}  // namespace lockstep::collectives
