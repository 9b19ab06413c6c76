#include "framework/comm/network/tcp_connection.h"

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <span>
#include <utility>

#include <poll.h>
#include <sys/socket.h>
#include <sys/uio.h>

namespace lockstep::comm {
namespace {

// The slot of a start: another order of bytes, or another version, shows in it.
constexpr std::uint64_t kStart = 0x6c6f636b73740001;
// So much in one call, then the next connection has its turn.
constexpr std::size_t kTurn = std::size_t{4} << 20;
// Behind a payload: what comes next, as a rule a header or small messages.
constexpr std::size_t kStaging = std::size_t{16} << 10;
// Receivers who wait for messages that were not posted here.
constexpr std::size_t kMostReady = 65536;
// What a kept message takes beside its bytes.
constexpr std::size_t kKeptOverhead = 128;

bool is_gone(int error) {
  return error != EAGAIN && error != EINTR;
}

}  // namespace

void TcpConnection::open(Descriptor socket, bool begins) {
  socket_ = std::move(socket);
  may_send_ = begins;
  out_.push_front(
      {.header = {
           .kind = Kind::start, .bytes = 0, .slot = kStart, .whole = 0, .id = 0, .group = 0}});
  send_some();
}

void TcpConnection::lose(std::string why) {
  if (!why_lost_.empty()) return;
  why_lost_ = std::move(why);
  socket_.close();
  waits_to_send_ = false;
  out_.clear();
  going_.reset();
  large_.clear();
  flowing_.clear();
  ready_.clear();
  coming_ = nullptr;
  early_.reset();
  small_.clear();
  posted_.clear();
}

void TcpConnection::finish(TcpMessage& message) {
  message.is_done = true;
  if (--message.wait->pending == 0) message.wait->changed.notify_all();
}

TcpMessage* TcpConnection::first_of(const Waiting& waiting, std::uint64_t slot) {
  const auto found = waiting.find(slot);
  return found == waiting.end() ? nullptr : found->second.front();
}

void TcpConnection::take_out(Waiting& waiting, const TcpMessage& message) {
  const auto found = waiting.find(message.slot);
  if (found == waiting.end()) return;
  std::erase(found->second, &message);
  if (found->second.empty()) waiting.erase(found);
}

void TcpConnection::post(TcpMessage& message) {
  message.is_received ? post_receive(message) : post_send(message);
}

void TcpConnection::tell(Kind kind, const TcpMessage& message) {
  queue({.kind = kind,
         .bytes = 0,
         .slot = message.slot,
         .whole = message.bytes(),
         .id = message.id,
         .group = message.group});
}

void TcpConnection::post_receive(TcpMessage& message) {
  if (message.bytes() <= kLargestSmall) {
    const auto found = kept_.find(message.slot);
    if (found != kept_.end() && found->second.front().bytes.size() == message.bytes()) {
      copy_bytes(found->second.front().bytes, message.received);
      kept_bytes_ -= message.bytes() + kKeptOverhead;
      found->second.pop_front();
      if (found->second.empty()) kept_.erase(found);
      message.moved = message.bytes();
      return finish(message);
    }
    if (why_lost_.empty()) small_[message.slot].push_back(&message);
    return;
  }
  if (!why_lost_.empty()) return;
  message.id = next_id_++;
  posted_[message.id] = &message;
  tell(Kind::ready, message);
  send_some();
}

void TcpConnection::post_send(TcpMessage& message) {
  if (!why_lost_.empty()) return;
  if (message.bytes() <= kLargestSmall) {
    out_.push_back({.header = {.kind = Kind::small,
                               .bytes = static_cast<std::uint32_t>(message.bytes()),
                               .slot = message.slot,
                               .whole = message.bytes(),
                               .id = 0,
                               .group = message.group},
                    .payload = message.sent,
                    .message = &message});
    return send_some();
  }
  const auto found = ready_.find(message.slot);
  if (found == ready_.end() || found->second.front().bytes != message.bytes()) {
    large_[message.slot].push_back(&message);
    return;
  }
  message.id = found->second.front().id;
  found->second.pop_front();
  --readies_;
  if (found->second.empty()) ready_.erase(found);
  flowing_.push_back(&message);
  send_some();
}

// A frame of `message` that was begun must be sent to its end: from a copy.
void TcpConnection::cut_off(const TcpMessage& message) {
  if (!going_ || going_->message != &message) return;
  going_->message = nullptr;
  if (going_->written == 0) return going_.reset();
  going_->own.assign(going_->payload.begin(), going_->payload.end());
  going_->payload = going_->own;
}

void TcpConnection::withdraw(TcpMessage& message) {
  if (!why_lost_.empty()) return;
  if (!message.is_received) {
    std::erase_if(out_, [&](const Frame& frame) { return frame.message == &message; });
    take_out(large_, message);
    std::erase(flowing_, &message);
    // The receiver waits on: it learns from others what has happened, and withdraws its side.
    return cut_off(message);
  }
  take_out(small_, message);
  if (coming_ == &message) coming_ = nullptr;
  if (posted_.erase(message.id) == 0) return;
  tell(Kind::withdrawn, message);
  send_some();
}

void TcpConnection::drop_kept(std::uint64_t group) {
  for (auto& [slot, messages] : kept_) {
    std::erase_if(messages, [&](const Kept& kept) {
      if (kept.group != group) return false;
      kept_bytes_ -= kept.bytes.size() + kKeptOverhead;
      return true;
    });
  }
  std::erase_if(kept_, [](const auto& each) { return each.second.empty(); });
}

void TcpConnection::say_goodbye() {
  is_ending_ = true;
  if (!may_send_) return lose("this process has ended");
  queue({.kind = Kind::goodbye, .bytes = 0, .slot = 0, .whole = 0, .id = 0, .group = 0});
  send_some();
}

short TcpConnection::polled() const noexcept {
  int events = 0;
  if (!is_full()) events |= POLLIN;
  if (waits_to_send_) events |= POLLOUT;
  return static_cast<short>(events);
}

bool TcpConnection::next_frame() {
  if (!out_.empty()) {
    going_ = std::move(out_.front());
    out_.pop_front();
    return true;
  }
  if (flowing_.empty()) return false;
  TcpMessage& message = *flowing_.front();
  flowing_.pop_front();
  const ConstBytes part = message.sent.subspan(message.moved)
                              .first(std::min(kLargestPart, message.bytes() - message.moved));
  going_ = Frame{.header = {.kind = Kind::part,
                            .bytes = static_cast<std::uint32_t>(part.size()),
                            .slot = message.slot,
                            .whole = message.bytes(),
                            .id = message.id,
                            .group = message.group},
                 .payload = part,
                 .message = &message};
  return true;
}

void TcpConnection::frame_is_out() {
  TcpMessage* const message = going_->message;
  const bool is_last = going_->header.kind == Kind::goodbye;
  going_.reset();
  if (is_last) ::shutdown(socket_.get(), SHUT_WR);
  if (message == nullptr) return;
  if (message->moved == message->bytes()) return finish(*message);
  flowing_.push_back(message);
}

void TcpConnection::send_some() {
  waits_to_send_ = false;
  if (!is_open() || !may_send_) return;
  for (std::size_t sent = 0; going_ || next_frame();) {
    if (sent >= kTurn) {
      waits_to_send_ = true;
      return;
    }
    Frame& frame = *going_;
    const auto header = std::as_bytes(std::span(&frame.header, 1));
    const std::size_t of_header = std::min(frame.written, header.size());
    const ConstBytes head = header.subspan(of_header);
    const ConstBytes body = frame.payload.subspan(frame.written - of_header);
    // sendmsg() takes pointers to mutable bytes, and only reads.
    std::array<iovec, 2> parts{{{const_cast<std::byte*>(head.data()), head.size()},
                                {const_cast<std::byte*>(body.data()), body.size()}}};
    msghdr out{};
    out.msg_iov = parts.data();
    out.msg_iovlen = parts.size();
    const ssize_t count = ::sendmsg(socket_.get(), &out, MSG_NOSIGNAL | MSG_DONTWAIT);
    if (count < 0) {
      if (errno == EINTR) continue;
      if (is_gone(errno)) return lose(std::strerror(errno));
      waits_to_send_ = true;
      return;
    }
    const auto gone = static_cast<std::size_t>(count);
    frame.written += gone;
    sent += gone;
    if (frame.message != nullptr) frame.message->moved += gone - std::min(gone, head.size());
    if (frame.written == header.size() + frame.payload.size()) frame_is_out();
  }
}

void TcpConnection::receive_some() {
  std::array<std::byte, kStaging> staging;  // NOLINT: filled by recvmsg()
  for (std::size_t received = 0; is_open() && !is_full() && received < kTurn;) {
    const Bytes direct = coming_ != nullptr && payload_left_ > 0
                             ? coming_->received.subspan(coming_->moved).first(payload_left_)
                             : Bytes{};
    std::array<iovec, 2> parts{{{direct.data(), direct.size()}, {staging.data(), staging.size()}}};
    msghdr in{};
    in.msg_iov = parts.data();
    in.msg_iovlen = parts.size();
    const ssize_t count = ::recvmsg(socket_.get(), &in, MSG_DONTWAIT);
    if (count < 0 && errno == EINTR) continue;
    if (count < 0 && !is_gone(errno)) return;
    if (count <= 0) return lose(count == 0 ? "it has closed it" : std::strerror(errno));
    const auto came = static_cast<std::size_t>(count);
    received += came;
    const std::size_t placed = std::min(came, direct.size());
    if (placed > 0) payload_came(placed);
    consume(ConstBytes(staging).first(came - placed));
    if (came < direct.size() + staging.size()) return;  // that was all
  }
}

// Bytes that have come, but not yet to their place.
void TcpConnection::consume(ConstBytes bytes) {
  while (!bytes.empty() && is_open()) {
    if (payload_left_ > 0) {
      const ConstBytes piece = bytes.first(std::min(bytes.size(), payload_left_));
      bytes = bytes.subspan(piece.size());
      if (coming_ != nullptr) copy_bytes(piece, coming_->received.subspan(coming_->moved));
      if (early_) copy_bytes(piece, Bytes(*early_).subspan(early_bytes_));
      payload_came(piece.size());
      continue;
    }
    const ConstBytes piece = bytes.first(std::min(bytes.size(), sizeof header_ - header_bytes_));
    bytes = bytes.subspan(piece.size());
    copy_bytes(piece, std::as_writable_bytes(std::span(&header_, 1)).subspan(header_bytes_));
    header_bytes_ += piece.size();
    if (header_bytes_ < sizeof header_) return;
    header_bytes_ = 0;
    if (const char* const wrong = begin_frame()) lose(wrong);
  }
}

const char* TcpConnection::begin_frame() {
  const bool is_start = header_.kind == Kind::start;
  if (is_start == has_started_ || (is_start && header_.slot != kStart)) {
    return "it is no Lockstep of this version, or has another order of bytes";
  }
  const bool has_payload = header_.kind == Kind::small || header_.kind == Kind::part;
  if (has_payload != (header_.bytes > 0)) return "it has sent a frame of a wrong size";
  switch (header_.kind) {
    case Kind::start:
      has_started_ = true;
      may_send_ = true;
      send_some();
      return nullptr;
    case Kind::small:
      return begin_small();
    case Kind::part:
      return begin_part();
    case Kind::ready:
      return take_ready();
    case Kind::withdrawn:
      take_withdrawn();
      return nullptr;
    case Kind::goodbye:
      return "it has ended";
  }
  return "it has sent a frame of an unknown kind";
}

const char* TcpConnection::begin_small() {
  if (header_.bytes > kLargestSmall || header_.whole != header_.bytes) {
    return "it has sent a small message of a wrong size";
  }
  coming_ = first_of(small_, header_.slot);
  if (coming_ != nullptr && coming_->bytes() != header_.bytes) {
    coming_ = nullptr;
    return "it has sent a message of another size than was expected";
  }
  payload_left_ = header_.bytes;
  if (coming_ != nullptr) {
    take_out(small_, *coming_);
  } else if (!dead_.contains(header_.group)) {
    early_.emplace(header_.bytes);
    early_bytes_ = 0;
  }
  return nullptr;
}

const char* TcpConnection::begin_part() {
  if (header_.bytes > kLargestPart) return "it has sent a part that is too large";
  if (header_.id == 0 || header_.id >= next_id_) return "it has sent a part that nobody awaits";
  const auto found = posted_.find(header_.id);
  payload_left_ = header_.bytes;
  if (found == posted_.end()) return nullptr;  // it was withdrawn
  TcpMessage& message = *found->second;
  if (header_.bytes > message.bytes() - message.moved) return "it has sent more than was expected";
  coming_ = &message;
  return nullptr;
}

void TcpConnection::payload_came(std::size_t bytes) {
  payload_left_ -= bytes;
  if (coming_ != nullptr) coming_->moved += bytes;
  if (early_) early_bytes_ += bytes;
  if (payload_left_ > 0) return;
  if (early_) keep();
  if (TcpMessage* const message = std::exchange(coming_, nullptr);
      message != nullptr && message->moved == message->bytes()) {
    posted_.erase(message->id);
    finish(*message);
  }
}

// A small message for which nobody had posted when it began to come.
void TcpConnection::keep() {
  const std::vector<std::byte> bytes = *std::exchange(early_, std::nullopt);
  TcpMessage* const message = first_of(small_, header_.slot);
  if (message != nullptr && message->bytes() == bytes.size()) {
    take_out(small_, *message);
    copy_bytes(bytes, message->received);
    message->moved = bytes.size();
    return finish(*message);
  }
  if (dead_.contains(header_.group)) return;
  kept_bytes_ += bytes.size() + kKeptOverhead;
  kept_[header_.slot].push_back({header_.group, bytes});
}

const char* TcpConnection::take_ready() {
  if (header_.whole <= kLargestSmall || header_.id == 0) return "it awaits a message of no size";
  TcpMessage* const message = first_of(large_, header_.slot);
  if (message != nullptr && message->bytes() == header_.whole) {
    take_out(large_, *message);
    message->id = header_.id;
    flowing_.push_back(message);
    send_some();
    return nullptr;
  }
  if (++readies_ > kMostReady) return "it awaits too many messages";
  ready_[header_.slot].push_back({header_.id, header_.whole});
  return nullptr;
}

// The message waits for another receiver. As a rule its own group ends it.
void TcpConnection::take_withdrawn() {
  if (const auto found = ready_.find(header_.slot); found != ready_.end()) {
    readies_ -=
        std::erase_if(found->second, [&](const Ready& ready) { return ready.id == header_.id; });
    if (found->second.empty()) ready_.erase(found);
  }
  TcpMessage* message = nullptr;
  const auto is_it = [&](const TcpMessage* other) { return other->id == header_.id; };
  if (const auto found = std::ranges::find_if(flowing_, is_it); found != flowing_.end()) {
    message = *found;
    flowing_.erase(found);
  } else if (going_ && going_->header.kind == Kind::part && going_->message != nullptr &&
             is_it(going_->message)) {
    message = going_->message;
    cut_off(*message);
  }
  if (message == nullptr) return;
  message->moved = 0;
  message->id = 0;
  large_[message->slot].push_back(message);
}

}  // namespace lockstep::comm
