#pragma once

#include <cstddef>
#include <memory>
#include <optional>
#include <vector>

#include "framework/comm/communicator.h"
#include "framework/comm/link_speed.h"

namespace lockstep::comm {

/// Joins the workers of several hosts: makes a HostMembers (host_members.cpp), which is a group of
/// workers on any hosts. `network` joins all workers of the job; worker `rank` of it
/// is on host host_of[rank], and a host's workers are next to each other. `local` joins those of
/// this worker's host, in the same order, through memory that they share. All workers call this
/// with the same `host_of`. ValueError if these do not fit together.
///
/// Of each group, only the first member on each host uses the network: the leader; but in an
/// all_to_all, in which nothing is sent twice, each does. Members of a group that are on one host
/// use `local` alone, as they would in a job of this host. Where all hosts have as many members,
/// next to each other, and these are a subtree of the canonical order (an aligned power of two),
/// reductions send what hosts with one member each would send.
///
/// A group that spans hosts differs from one of `local` in this:
/// - A buffer of Copies::each is symmetric among the members of a host. A buffer of Copies::one has
///   one copy on each host. Of what a verb writes there, each member of the host writes a part.
/// - ledger() counts what this worker has sent over the network, for all groups that span hosts. So
///   the sum over a host's workers is what the host has sent; in an all_to_all what they have sent
///   each other, too.
/// - If the leader's part of a verb fails, all members of its host throw the same error.
[[nodiscard]] std::shared_ptr<Communicator> join_hosts(std::shared_ptr<Communicator> local,
                                                       std::shared_ptr<Communicator> network,
                                                       std::vector<int> host_of);

/// How hosts with several members send a large buffer of `rows` rows of `row` bytes: `count` pieces
/// one after the other, each of up to `bytes` of every row.
struct HostPieces {
  HostPieces(std::size_t rows, std::size_t row);

  std::size_t bytes;
  std::size_t count;
};
/// How many pieces are sent at once: while one waits for an answer, the other has the link.
inline constexpr std::size_t kPiecesUnderWay = 2;

/// Sets the link speed of `world`, which join_hosts() has made with the same `host_of`: `known`,
/// or what one worker of each host measures. All workers call this, with the same arguments, before
/// any other verb. Worker 0 logs the speed and what follows from it.
void set_up_links(Communicator& world, const std::vector<int>& host_of,
                  const std::optional<LinkSpeed>& known = std::nullopt);

}  // namespace lockstep::comm
