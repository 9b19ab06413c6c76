#include "framework/collectives/ragged_route.h"

#include <algorithm>
#include <string>

#include "framework/base/errors.h"
#include "framework/base/text.h"
#include "framework/base/wording.h"

namespace lockstep {
namespace {

// The tables' places in a row.
enum Table : std::int64_t { kInputOffsets, kSendSizes, kOutputOffsets, kRecvSizes, kTables };

std::string text_of_rows(const Rows& rows) {
  return lockstep::str(rows.offset, " to ", rows.offset + rows.size - 1);
}

// Offsets of empty pieces are nobody's concern.
bool inside(const Rows& rows, std::int64_t length) {
  return rows.size == 0 ||
         (rows.offset >= 0 && rows.size <= length && rows.offset <= length - rows.size);
}

}  // namespace

RaggedPlan::RaggedPlan(at::Tensor table, std::int64_t operand_rows, std::int64_t output_rows,
                       std::vector<std::int64_t> names)
    : table_(std::move(table)),
      values_(table_.data_ptr<std::int64_t>()),
      operand_rows_(operand_rows),
      output_rows_(output_rows),
      names_(std::move(names)),
      replicas_(table_.size(0)),
      slots_(table_.size(1) / kTables),
      pieces_(slots_ / replicas_) {}

std::int64_t RaggedPlan::at(std::int64_t replica, std::int64_t column) const {
  return values_[replica * table_.size(1) + column];
}

RaggedPlan::Piece RaggedPlan::piece(std::int64_t sender, std::int64_t receiver,
                                    std::int64_t index) const {
  const std::int64_t slot = receiver * pieces_ + index;
  const std::int64_t slot_there = sender * pieces_ + index;
  const std::int64_t size = at(sender, kSendSizes * slots_ + slot);
  return {slot,
          {at(sender, kInputOffsets * slots_ + slot), size},
          {at(sender, kOutputOffsets * slots_ + slot), size},
          at(receiver, kRecvSizes * slots_ + slot_there),
          slot_there};
}

void RaggedPlan::check_piece(const AxisCall& call, std::int64_t sender, std::int64_t receiver,
                             const Piece& piece) const {
  const std::int64_t from = names_[static_cast<std::size_t>(sender)];
  const std::int64_t to = names_[static_cast<std::size_t>(receiver)];
  const std::int64_t size = piece.input.size;
  if (size < 0) {
    throw ValueError(lockstep::str(call.text(), ": replica ", from, "'s send_sizes[", piece.slot,
                                   "] is ", size, "; it must not be negative"));
  }
  if (size != piece.expected) {
    throw ValueError(lockstep::str(
        call.text(), ": replica ", from, " sends replica ", to, " ", counted(size, "row"),
        " (send_sizes[", piece.slot, "]), but replica ", to, " expects ", piece.expected,
        " from replica ", from, " (recv_sizes[", piece.slot_there, "])"));
  }
  if (!inside(piece.input, operand_rows_)) {
    throw ValueError(lockstep::str(call.text(), ": replica ", from, " sends replica ", to, " ",
                                   counted(size, "row"), " from row ", piece.input.offset,
                                   " on (input_offsets[", piece.slot, "]), but its operand has ",
                                   operand_rows_));
  }
  if (!inside(piece.output, output_rows_)) {
    throw ValueError(lockstep::str(call.text(), ": replica ", from, " sends replica ", to, " ",
                                   counted(size, "row"), " for row ", piece.output.offset,
                                   " on (output_offsets[", piece.slot,
                                   "]), but the output of replica ", to, " has ", output_rows_));
  }
}

void RaggedPlan::check_overlaps(const AxisCall& call, std::int64_t receiver) const {
  struct Arrival {
    Rows rows;
    std::int64_t sender;
  };
  std::vector<Arrival> arrivals;
  for (std::int64_t sender = 0; sender < replicas_; ++sender) {
    for (std::int64_t index = 0; index < pieces_; ++index) {
      const Rows rows = piece(sender, receiver, index).output;
      if (rows.size > 0) arrivals.push_back({rows, names_[static_cast<std::size_t>(sender)]});
    }
  }
  std::stable_sort(arrivals.begin(), arrivals.end(), [](const Arrival& a, const Arrival& b) {
    return a.rows.offset < b.rows.offset;
  });
  for (std::size_t i = 1; i < arrivals.size(); ++i) {
    const Arrival& before = arrivals[i - 1];
    if (before.rows.offset + before.rows.size <= arrivals[i].rows.offset) continue;
    throw ValueError(lockstep::str(
        call.text(), ": rows from replica ", before.sender, " (", text_of_rows(before.rows),
        ") and from replica ", arrivals[i].sender, " (", text_of_rows(arrivals[i].rows),
        ") overlap in the output of replica ", names_[static_cast<std::size_t>(receiver)]));
  }
}

void RaggedPlan::check(const AxisCall& call) const {
  for (std::int64_t sender = 0; sender < replicas_; ++sender) {
    for (std::int64_t receiver = 0; receiver < replicas_; ++receiver) {
      for (std::int64_t index = 0; index < pieces_; ++index) {
        check_piece(call, sender, receiver, piece(sender, receiver, index));
      }
    }
  }
  for (std::int64_t receiver = 0; receiver < replicas_; ++receiver) check_overlaps(call, receiver);
}

RaggedRoute RaggedPlan::route_of(std::int64_t replica) const {
  RaggedRoute route;
  for (std::int64_t peer = 0; peer < replicas_; ++peer) {
    auto& sent = route.sent.emplace_back();
    auto& received = route.received.emplace_back();
    for (std::int64_t index = 0; index < pieces_; ++index) {
      sent.push_back(piece(replica, peer, index).input);
      received.push_back(piece(peer, replica, index).output);
    }
  }
  return route;
}

bool any_overlap(const std::vector<std::vector<Rows>>& pieces) {
  std::vector<Rows> sorted;
  for (const auto& list : pieces) {
    for (const Rows& rows : list) {
      if (rows.size > 0) sorted.push_back(rows);
    }
  }
  std::sort(sorted.begin(), sorted.end(),
            [](const Rows& a, const Rows& b) { return a.offset < b.offset; });
  for (std::size_t i = 1; i < sorted.size(); ++i) {
    if (sorted[i - 1].offset + sorted[i - 1].size > sorted[i].offset) return true;
  }
  return false;
}

}  // namespace lockstep
