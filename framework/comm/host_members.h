#pragma once

#include <cstddef>
#include <memory>
#include <optional>
#include <vector>

#include "framework/comm/communicator.h"
#include "framework/comm/link_speed.h"

namespace lockstep::comm {

/// Joins the workers of several hosts into one group, a HostMembers (host_members.cpp), whose
/// subgroups may have any members. `network` joins all workers of the job; its worker r is on host
/// host_of[r], and a host's workers are next to each other. `local` joins the workers of this host,
/// in the same order, through memory that they share. All workers call this with the same
/// `host_of`. Throws ValueError if the arguments do not fit together.
///
/// Only the leader, a group's first member on each host, uses the network; in an all_to_all, in
/// which nothing is sent twice, each member does. A group on one host uses `local` alone, as in a
/// job of this host. If all hosts have equally many members, next to each other, and these are a
/// subtree of the canonical order (an aligned power of two), reductions send as much as those of
/// hosts with one member each.
///
/// A group that spans hosts differs from one of `local` in this:
/// - A buffer of Copies::each is symmetric among the members of a host. A buffer of Copies::one has
///   one copy on each host, into which the members of the host write a verb's output in parts.
/// - ledger() counts what this worker sends over the network, for all groups that span hosts. The
///   sum over a host's workers is what the host sends and, in an all_to_all, what they send each
///   other.
/// - If the leader's part of a verb fails, all members of its host throw the same error.
[[nodiscard]] std::shared_ptr<Communicator> join_hosts(std::shared_ptr<Communicator> local,
                                                       std::shared_ptr<Communicator> network,
                                                       std::vector<int> host_of);

/// The pieces in which hosts with several members send a large buffer of `rows` rows of `row`
/// bytes: `count` pieces one after the other, each of up to `bytes` of every row.
struct HostPieces {
  HostPieces(std::size_t rows, std::size_t row);

  std::size_t bytes;
  std::size_t count;
};
/// The pieces that are sent at once: while one waits for an answer, the other has the link.
inline constexpr std::size_t kPiecesUnderWay = 2;

/// Sets the link speed of `world`, which join_hosts() has made with the same `host_of`: `known`, or
/// the speed that one worker of each host measures. All workers call this, with the same arguments,
/// before any other verb. Worker 0 logs the speed and the rounds that it leads to.
void set_up_links(Communicator& world, const std::vector<int>& host_of,
                  const std::optional<LinkSpeed>& known = std::nullopt);

}  // namespace lockstep::comm
