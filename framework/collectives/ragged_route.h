#pragma once

#include <cstdint>
#include <utility>
#include <vector>

#include <ATen/core/Tensor.h>

#include "framework/axes/environment.h"

namespace lockstep {

// Which rows ragged_all_to_all moves, as one replica sees it.

/// Rows of a leaf: slices along dimension 0.
struct Rows {
  std::int64_t offset;
  std::int64_t size;
};

struct RaggedRoute {
  std::vector<std::vector<Rows>> sent;      // [receiver]: rows of the own operand, one or more
  std::vector<std::vector<Rows>> received;  // [sender]: rows of the own result, likewise
};

/// What each replica gives: the tables in a row of 4 K numbers (input_offsets, send_sizes,
/// output_offsets, recv_sizes, each K long).
class RaggedPlan {
 public:
  /// `table` has one such row a replica, int64 and contiguous; the operands and outputs of all have
  /// as many rows as is said; `names` are the replicas' indices along the axis, for messages.
  RaggedPlan(at::Tensor table, std::int64_t operand_rows, std::int64_t output_rows,
             std::vector<std::int64_t> names);

  /// Throws ValueError if anything in it does not fit. A function of the whole table: the same on
  /// every replica.
  void check(const AxisCall& call) const;

  [[nodiscard]] RaggedRoute route_of(std::int64_t replica) const;

 private:
  struct Piece {
    std::int64_t slot;  // its place in the sender's tables
    Rows input;
    Rows output;
    std::int64_t expected;  // rows, says the receiver
    std::int64_t slot_there;
  };
  [[nodiscard]] std::int64_t at(std::int64_t replica, std::int64_t column) const;
  [[nodiscard]] Piece piece(std::int64_t sender, std::int64_t receiver, std::int64_t index) const;
  void check_piece(const AxisCall& call, std::int64_t sender, std::int64_t receiver,
                   const Piece& piece) const;
  void check_overlaps(const AxisCall& call, std::int64_t receiver) const;

  at::Tensor table_;
  const std::int64_t* values_;
  std::int64_t operand_rows_;
  std::int64_t output_rows_;
  std::vector<std::int64_t> names_;
  std::int64_t replicas_;
  std::int64_t slots_;   // K
  std::int64_t pieces_;  // a pair of replicas
};

/// Whether two of the pieces have a row in common.
[[nodiscard]] bool any_overlap(const std::vector<std::vector<Rows>>& pieces);

}  // namespace lockstep
