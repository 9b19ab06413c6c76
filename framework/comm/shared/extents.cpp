#include "framework/comm/shared/extents.h"

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <mutex>
#include <string>
#include <utility>

#include <fcntl.h>
#include <sys/mman.h>
#include <unistd.h>

#include "framework/base/errors.h"
#include "framework/base/pages.h"
#include "framework/base/text.h"

namespace lockstep {
namespace {

[[noreturn]] void refuse(std::size_t bytes, const std::string& why) {
  throw CommError(
      str("no symmetric buffer: replicas of this host would share ", bytes, " bytes; ", why));
}

}  // namespace

// Counts only up: those who have come and those who have gone.
struct SharedExtents::Extent::Head {
  Word came;
  Word gone;
};

SharedExtents::Extent::Extent(std::shared_ptr<SharedExtents> owner, std::size_t offset,
                              std::size_t bytes)
    : owner_(std::move(owner)),
      offset_(offset),
      bytes_(whole_pages(bytes)),
      mapping_(map_shared(owner_->descriptor_, offset, kPage + bytes_)) {
  head().came.count();
}

SharedExtents::Extent::~Extent() {
  owner_->forget(*this);
  // Everybody has come before anybody goes: see Communicator::allocate.
  const bool is_last = head().gone.count() + 1 == head().came.load();
  if (is_last) {
    ::fallocate(owner_->descriptor_, FALLOC_FL_PUNCH_HOLE | FALLOC_FL_KEEP_SIZE,
                static_cast<off_t>(offset_), static_cast<off_t>(kPage + bytes_));
  }
}

SharedExtents::Extent::Head& SharedExtents::Extent::head() const noexcept {
  return *reinterpret_cast<Head*>(mapping_.get());
}

std::span<std::byte> SharedExtents::Extent::data() const noexcept {
  return {mapping_.get() + kPage, bytes_};
}

void SharedExtents::Extent::reserve(std::span<const std::byte> part) const {
  if (part.empty()) return;
  const auto begin = static_cast<std::size_t>(part.data() - mapping_.get());
  int failed = 0;
  do {
    failed = ::fallocate(owner_->descriptor_, 0, static_cast<off_t>(offset_ + begin),
                         static_cast<off_t>(part.size()));
  } while (failed != 0 && errno == EINTR);
  if (failed != 0) refuse(part.size(), std::strerror(errno));
#ifdef MADV_POPULATE_WRITE
  // Page faults now rather than in the first collective; older systems have them there.
  ::madvise(mapping_.get() + begin, part.size(), MADV_POPULATE_WRITE);
#endif
}

SharedExtents::SharedExtents(int descriptor, std::size_t start)
    : start_(start),
      used_(std::reinterpret_pointer_cast<Word>(map_shared(descriptor, start, kPage))),
      descriptor_(::fcntl(descriptor, F_DUPFD_CLOEXEC, 0)) {
  if (descriptor_ < 0) throw CommError(str("descriptor ", descriptor, ": ", std::strerror(errno)));
}

SharedExtents::~SharedExtents() {
  ::close(descriptor_);
}

std::shared_ptr<SharedExtents::Extent> SharedExtents::allocate(std::size_t bytes) {
  check_memory_left(bytes);
  const std::size_t size = kPage + whole_pages(bytes);
  std::uint64_t used = used_->load();
  while (!used_->replace(used, used + size)) used = used_->load();
  if (used + size > kBytes - kPage) refuse(bytes, "the addresses for them are used up");
  return attach(start_ + kPage + used, bytes);
}

std::shared_ptr<SharedExtents::Extent> SharedExtents::attach(std::size_t offset,
                                                             std::size_t bytes) {
  const std::unique_lock lock(mutex_);
  for (const Known& known : known_) {
    if (known.extent->offset() != offset) continue;
    if (auto extent = known.held.lock()) return extent;
  }
  known_.reserve(known_.size() + 1);
  auto extent = std::make_shared<Extent>(shared_from_this(), offset, bytes);
  known_.push_back({extent.get(), extent});
  count_ = known_.size();
  return extent;
}

void SharedExtents::forget(const Extent& extent) noexcept {
  const std::unique_lock lock(mutex_);
  std::erase_if(known_, [&](const Known& known) { return known.extent == &extent; });
  count_ = known_.size();
}

SharedPlace SharedExtents::find(std::span<const std::byte> buffer) const {
  if (count_ == 0 || buffer.empty()) return {};
  const std::shared_lock lock(mutex_);
  for (const Known& known : known_) {
    const auto data = known.extent->data();
    if (buffer.data() >= data.data() &&
        buffer.data() + buffer.size() <= data.data() + data.size()) {
      return {known.extent->offset(), static_cast<std::uint64_t>(buffer.data() - data.data())};
    }
  }
  return {};
}

std::byte* SharedExtents::data_of(std::uint64_t extent) const {
  const std::shared_lock lock(mutex_);
  const auto known =
      std::ranges::find(known_, extent, [](const Known& each) { return each.extent->offset(); });
  return known == known_.end() ? nullptr : known->extent->data().data();
}

}  // namespace lockstep
