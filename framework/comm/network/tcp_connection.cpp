#include "framework/comm/network/tcp_connection.h"

#include <algorithm>
#include <cerrno>
#include <span>
#include <utility>

#include <poll.h>
#include <sys/socket.h>
#include <sys/uio.h>

#include "framework/base/limits.h"

namespace lockstep::comm {
namespace {

// The slot of a start: another order of bytes, or another version, shows in it.
constexpr std::uint64_t kStart = 0x6c6f636b73740001;
// The most bytes of one call: then the next connection has its turn.
constexpr std::size_t kTurn = std::size_t{4} << 20;
// Room for the bytes behind a payload: as a rule a header or small messages.
constexpr std::size_t kStaging = std::size_t{16} << 10;
// The most receivers that wait for messages that were not posted here.
constexpr std::size_t kMostReady = 65536;
// The bytes that a kept message takes beside its own.
constexpr std::size_t kKeptOverhead = 128;

bool is_gone(int error) {
  return error != EAGAIN && error != EINTR;
}

}  // namespace

void TcpConnection::open(Descriptor socket, bool begins) {
  socket_ = std::move(socket);
  may_send_ = begins;
  out_.push_front({.header = {.kind = Kind::start, .slot = kStart}});
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
  transfers_ = 0;
}

void TcpConnection::finish(TcpMessage& message) {
  message.is_done = true;
  if (--message.wait->pending == 0) message.wait->changed.notify_all();
}

void TcpConnection::post(TcpMessage& message) {
  message.is_received() ? post_receive(message) : post_send(message);
}

TcpConnection::Header TcpConnection::header_of(Kind kind, const TcpMessage& message,
                                               std::size_t bytes) {
  return {.kind = kind,
          .bytes = static_cast<std::uint32_t>(bytes),
          .slot = message.slot,
          .whole = message.bytes(),
          .id = message.id,
          .group = message.group};
}

void TcpConnection::post_receive(TcpMessage& message) {
  if (message.bytes() <= kLargestSmall) {
    const auto found = first_of(kept_, message.slot);
    if (found != kept_.end() && found->second.bytes.size() == message.bytes()) {
      copy_bytes(found->second.bytes, message.received);
      kept_bytes_ -= message.bytes() + kKeptOverhead;
      kept_.erase(found);
      message.moved = message.bytes();
      return finish(message);
    }
    if (why_lost_.empty()) small_.emplace(message.slot, &message);
    return;
  }
  if (!why_lost_.empty()) return;
  message.id = next_id_++;
  posted_[message.id] = &message;
  queue(header_of(Kind::ready, message));
  send_some();
}

void TcpConnection::post_send(TcpMessage& message) {
  if (!why_lost_.empty()) return;
  if (message.bytes() <= kLargestSmall) {
    out_.push_back({.header = header_of(Kind::small, message, message.bytes()),
                    .payload = message.sent,
                    .message = &message});
    return send_some();
  }
  const auto found = first_of(ready_, message.slot);
  if (found == ready_.end() || found->second.bytes != message.bytes()) {
    large_.emplace(message.slot, &message);
    return;
  }
  message.id = found->second.id;
  ready_.erase(found);
  flowing_.push_back(&message);
  send_some();
}

// Lets a frame of `message` that was begun go on to its end, from a copy.
void TcpConnection::cut_off(const TcpMessage& message) {
  if (!going_ || going_->message != &message) return;
  going_->message = nullptr;
  if (going_->written == 0) return going_.reset();
  going_->own.assign(going_->payload.begin(), going_->payload.end());
  going_->payload = going_->own;
}

void TcpConnection::withdraw(TcpMessage& message) {
  if (!why_lost_.empty()) return;
  const auto is_it = [&](const auto& each) { return each.second == &message; };
  if (!message.is_received()) {
    std::erase_if(out_, [&](const Frame& frame) { return frame.message == &message; });
    std::erase_if(large_, is_it);
    std::erase(flowing_, &message);
    // The receiver waits on: it learns from others what has happened, and withdraws its side.
    return cut_off(message);
  }
  std::erase_if(small_, is_it);
  const bool has_begun = coming_ == &message || message.moved > 0;
  if (coming_ == &message) coming_ = nullptr;
  if (posted_.erase(message.id) == 0) return;
  if (has_begun) --transfers_;
  queue(header_of(Kind::withdrawn, message));
  send_some();
}

void TcpConnection::drop_kept(std::uint64_t group) {
  std::erase_if(kept_, [&](const auto& each) {
    if (each.second.group != group) return false;
    kept_bytes_ -= each.second.bytes.size() + kKeptOverhead;
    return true;
  });
}

void TcpConnection::say_goodbye() {
  is_ending_ = true;
  if (!may_send_) return lose("this process has ended");
  queue({.kind = Kind::goodbye});
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
  going_ = Frame{
      .header = header_of(Kind::part, message, part.size()), .payload = part, .message = &message};
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
      if (is_gone(errno)) return lose(text_of_errno(errno));
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
    if (count <= 0) return lose(count == 0 ? "it has closed it" : text_of_errno(errno));
    const auto came = static_cast<std::size_t>(count);
    received += came;
    const std::size_t placed = std::min(came, direct.size());
    if (placed > 0) payload_came(placed);
    consume(ConstBytes(staging).first(came - placed));
    if (came < direct.size() + staging.size()) return;  // that was all
  }
}

// Takes bytes that have come, but not yet to their place.
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
  const auto found = first_of(small_, header_.slot);
  if (found != small_.end() && found->second->bytes() != header_.bytes) {
    return "it has sent a message of another size than was expected";
  }
  payload_left_ = header_.bytes;
  if (found != small_.end()) {
    coming_ = found->second;
    small_.erase(found);
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
  if (message.moved == 0 && transfers_++ == 0) {
    transfer_begin_ = timeline::recorder_now();
    transfer_.bytes = 0;
  }
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
    if (posted_.erase(message->id) > 0) end_transfer(message->bytes());
    finish(*message);
  }
}

void TcpConnection::end_transfer(std::size_t bytes) {
  transfer_.bytes += bytes;
  if (--transfers_ > 0 || track_ == nullptr) return;
  transfer_.id = host_;
  track_->end(track_->begin(transfer_, transfer_begin_), transfer_, transfer_begin_);
}

// Keeps a small message for which nobody had posted when it began to come.
void TcpConnection::keep() {
  const std::vector<std::byte> bytes = *std::exchange(early_, std::nullopt);
  const auto found = first_of(small_, header_.slot);
  if (found != small_.end() && found->second->bytes() == bytes.size()) {
    TcpMessage& message = *found->second;
    small_.erase(found);
    copy_bytes(bytes, message.received);
    message.moved = bytes.size();
    return finish(message);
  }
  if (dead_.contains(header_.group)) return;
  kept_bytes_ += bytes.size() + kKeptOverhead;
  kept_.emplace(header_.slot, Kept{header_.group, bytes});
}

const char* TcpConnection::take_ready() {
  if (header_.whole <= kLargestSmall || header_.id == 0) return "it awaits a message of no size";
  const auto found = first_of(large_, header_.slot);
  if (found != large_.end() && found->second->bytes() == header_.whole) {
    found->second->id = header_.id;
    flowing_.push_back(found->second);
    large_.erase(found);
    send_some();
    return nullptr;
  }
  if (ready_.size() == kMostReady) return "it awaits too many messages";
  ready_.emplace(header_.slot, Ready{header_.id, header_.whole});
  return nullptr;
}

// Lets a message wait for another receiver. As a rule its own group ends it.
void TcpConnection::take_withdrawn() {
  std::erase_if(ready_, [&](const auto& each) {
    return each.first == header_.slot && each.second.id == header_.id;
  });
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
  large_.emplace(message->slot, message);
}

}  // namespace lockstep::comm
