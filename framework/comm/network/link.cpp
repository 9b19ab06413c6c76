#include "framework/comm/network/link.h"

#include <algorithm>
#include <cerrno>
#include <span>
#include <utility>

#include <netinet/in.h>
#include <netinet/tcp.h>
#include <sys/socket.h>

#include "framework/base/errors.h"
#include "framework/base/limits.h"
#include "framework/base/text.h"
#include "framework/comm/network/host_and_port.h"

namespace lockstep::comm {
namespace {

// A message is its length in 4 bytes, the text and its Mac.
constexpr std::size_t kLengthBytes = 4;

}  // namespace

JobId new_job_id() {
  JobId id{};
  fill_randomly(id);
  return id;
}

void keep_alive(int socket, std::int64_t probes) noexcept {
  const int on = 1;
  const auto most = static_cast<int>(std::clamp<std::int64_t>(probes, 1, 120));
  ::setsockopt(socket, SOL_SOCKET, SO_KEEPALIVE, &on, sizeof on);
  ::setsockopt(socket, IPPROTO_TCP, TCP_KEEPIDLE, &on, sizeof on);
  ::setsockopt(socket, IPPROTO_TCP, TCP_KEEPINTVL, &on, sizeof on);
  ::setsockopt(socket, IPPROTO_TCP, TCP_KEEPCNT, &most, sizeof most);
}

Link::Link(Descriptor socket, std::string peer, const JobId& job, const Secret& key, End own)
    : socket_(std::move(socket)), peer_(std::move(peer)), job_(job), key_(key), own_(own) {
  const int on = 1;  // small messages do not wait for more
  ::setsockopt(socket_.get(), IPPROTO_TCP, TCP_NODELAY, &on, sizeof on);
}

pollfd Link::polled() const noexcept {
  const bool sends = out_begin_ < out_.size();
  return {socket_.get(), static_cast<short>(sends ? POLLIN | POLLOUT : POLLIN), 0};
}

void Link::limit_silence(std::chrono::milliseconds limit) noexcept {
  const auto unanswered = static_cast<unsigned>(limit.count());
  keep_alive(socket_.get(), limit.count() / 1000 - 1);
  ::setsockopt(socket_.get(), IPPROTO_TCP, TCP_USER_TIMEOUT, &unanswered, sizeof unanswered);
}

std::string Link::own_address() const {
  sockaddr_storage address{};
  socklen_t length = sizeof address;
  require_done<CommError>(
      ::getsockname(socket_.get(), reinterpret_cast<sockaddr*>(&address), &length) == 0,
      "no own address");
  return address_text(reinterpret_cast<sockaddr&>(address), length, /*with_port=*/false);
}

void Link::close(std::string why) noexcept {
  if (!is_open()) return;
  socket_.close();
  why_closed_ = std::move(why);
}

Mac Link::mac_of(End sender, std::uint64_t number, std::string_view message) const {
  return key_.mac({std::as_bytes(std::span(&sender, 1)), std::as_bytes(std::span(&number, 1)),
                   std::as_bytes(std::span(message))});
}

void Link::send(std::string_view message) {
  require(message.size() <= kLongestMessage, "link: a message of ", message.size(),
          " bytes, and the longest has ", kLongestMessage);
  if (!is_open()) return;
  if (out_.size() - out_begin_ + message.size() > kMostQueued) {
    return close("the other end does not read");
  }
  put_number(out_, message.size(), kLengthBytes);
  out_ += message;
  put(out_, mac_of(own_, sent_++, message));
}

void Link::progress() {
  send_queued();
  receive_more();
}

void Link::send_queued() {
  while (is_open() && out_begin_ < out_.size()) {
    const ssize_t count =
        ::send(socket_.get(), out_.data() + out_begin_, out_.size() - out_begin_, MSG_NOSIGNAL);
    if (count >= 0) {
      out_begin_ += static_cast<std::size_t>(count);
    } else if (errno == EAGAIN) {
      break;
    } else if (errno != EINTR) {
      const std::string why = text_of_errno(errno);
      receive_more();  // the other end's last message may say why it left
      socket_.close();
      why_closed_ = why;  // not the mere end that receiving has found
    }
  }
  out_.erase(0, std::exchange(out_begin_, 0));
}

void Link::receive_more() {
  std::array<char, 65536> buffer{};
  // A fast sender does not hold up the rest of the loop.
  constexpr int kMostReads = 16;
  for (int reads = 0; is_open() && reads < kMostReads; ++reads) {
    const ssize_t count = ::recv(socket_.get(), buffer.data(), buffer.size(), 0);
    if (count > 0) {
      in_.append(buffer.data(), static_cast<std::size_t>(count));
      take_messages();
    } else if (count == 0) {
      close("the other end has closed it");
    } else if (errno == EAGAIN) {
      return;
    } else if (errno != EINTR) {
      close(text_of_errno(errno));
    }
  }
}

void Link::take_messages() {
  std::string_view rest = in_;
  while (rest.size() >= kLengthBytes) {
    const std::size_t length = number_at(rest, kLengthBytes);
    if (length > kLongestMessage) return close("a message was damaged on the way");
    if (rest.size() < kLengthBytes + length + sizeof(Mac)) break;
    const std::string_view message = rest.substr(kLengthBytes, length);
    const auto mac = decode<Mac>(rest.substr(kLengthBytes + length, sizeof(Mac)), "a Mac");
    const End other = own_ == End::listener ? End::connector : End::listener;
    if (!is_same(mac, mac_of(other, received_++, message))) {
      return close("a message was damaged on the way");
    }
    messages_.emplace_back(message);
    rest.remove_prefix(kLengthBytes + length + sizeof(Mac));
  }
  in_.erase(0, in_.size() - rest.size());
}

std::optional<std::string> Link::receive() {
  if (messages_.empty()) return std::nullopt;
  std::string message = std::move(messages_.front());
  messages_.pop_front();
  return message;
}

Descriptor Link::release() {
  send_queued();
  if (out_begin_ < out_.size() || !in_.empty() || !messages_.empty()) {
    close("it was to be released in the middle of messages");
  }
  if (is_open()) why_closed_ = "it was released";
  return Descriptor(socket_.release());
}

}  // namespace lockstep::comm
