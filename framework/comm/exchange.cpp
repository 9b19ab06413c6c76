#include "framework/comm/exchange.h"

#include <numeric>

namespace lockstep {

std::vector<Exchange::Pieces> Exchange::operator()(std::vector<Pieces> out,
                                                   const std::vector<Sizes>& in) {
  const std::size_t hosts = layout_.places.size();
  if (outer_ == nullptr) return out;
  Sizes send_sizes(hosts, 0);
  Sizes recv_sizes(hosts, 0);
  for (std::size_t host = 0; host < hosts; ++host) {
    if (host == layout_.own) continue;
    for (const ConstBytes piece : out[host]) send_sizes[host] += piece.size();
    recv_sizes[host] = std::accumulate(in[host].begin(), in[host].end(), std::size_t{0});
  }
  const auto total = [](const Sizes& sizes) {
    return std::accumulate(sizes.begin(), sizes.end(), std::size_t{0});
  };
  const Bytes sent = scratch(total(send_sizes));
  std::size_t offset = 0;
  for (std::size_t host = 0; host < hosts; ++host) {
    if (host == layout_.own) continue;
    for (const ConstBytes piece : out[host]) {
      copy_bytes(piece, sent.subspan(offset, piece.size()));
      offset += piece.size();
    }
  }
  const Bytes received = scratch(total(recv_sizes));
  outer_->all_to_all(sent, send_sizes, received, recv_sizes);
  const std::byte* next = received.data();
  for (std::size_t host = 0; host < hosts; ++host) {
    if (host == layout_.own) continue;
    out[host].clear();
    for (const std::size_t size : in[host]) {
      out[host].emplace_back(next, size);
      next += size;
    }
  }
  return out;
}

Bytes Exchange::scratch(std::size_t bytes) {
  scratch_.push_back(std::make_unique_for_overwrite<std::byte[]>(bytes));
  return {scratch_.back().get(), bytes};
}

}  // namespace lockstep
