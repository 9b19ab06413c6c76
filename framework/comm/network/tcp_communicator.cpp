#include "framework/comm/network/tcp_communicator.h"

#include <utility>

#include "framework/base/range.h"
#include "framework/base/text.h"
#include "framework/comm/network_communicator.h"

namespace lockstep::comm {

std::shared_ptr<Communicator> connect_tcp(std::shared_ptr<Store> store, int rank, int size,
                                          const NetworkOptions& network,
                                          const ConnectOptions& options) {
  require(rank >= 0 && rank < size, "connect_tcp: rank ", rank, " is not in a group of ", size);
  auto link = std::make_shared<TcpLink>(std::move(store), rank, size, network, options);
  return std::make_shared<NetworkCommunicator>(std::move(link), consecutive(0, size), rank, 0);
}

}  // namespace lockstep::comm
