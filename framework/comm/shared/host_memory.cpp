#include "framework/comm/shared/host_memory.h"

#include <algorithm>
#include <cerrno>
#include <string>
#include <utility>

#include <fcntl.h>
#include <pthread.h>
#include <sys/mman.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <unistd.h>

#include "framework/base/errors.h"
#include "framework/base/limits.h"
#include "framework/base/memory.h"
#include "framework/base/text.h"
#include "framework/calls/call_table.h"
#include "framework/timeline/recorder.h"

namespace lockstep::comm {
namespace {

std::size_t size_of_file(int descriptor) {
  struct stat file {};
  return ::fstat(descriptor, &file) == 0 ? static_cast<std::size_t>(file.st_size) : 0;
}

constexpr std::size_t lines_bytes(std::size_t members) {
  return whole_pages(members * sizeof(HostMemory::Line));
}

constexpr std::size_t region_bytes(std::size_t members) {
  return lines_bytes(members) +
         members * (2 * HostMemory::kSmallBytes + HostMemory::kChunks * HostMemory::kChunkBytes);
}

[[noreturn]] void refuse(const std::string& what, int reason) {
  throw CommError(
      str("the memory that replicas of a host share: ", what, ": ", text_of_errno(reason)));
}

[[noreturn]] void refuse_extent(std::size_t bytes, const std::string& why) {
  throw CommError(
      str("no symmetric buffer: replicas of this host would share ", bytes, " bytes; ", why));
}

}  // namespace

SharedExtents::Extent::Extent(std::shared_ptr<SharedExtents> owner, std::size_t offset,
                              std::size_t bytes)
    : owner_(std::move(owner)),
      offset_(offset),
      bytes_(whole_pages(bytes)),
      mapping_(map_shared(owner_->descriptor(), offset, kPage + bytes_)) {
  head().came.count();
}

SharedExtents::Extent::~Extent() {
  owner_->forget(*this);
  // Everybody has come before anybody goes: see Communicator::allocate.
  const bool is_last = head().gone.count() + 1 == head().came.load();
  if (is_last) {
    ::fallocate(owner_->descriptor(), FALLOC_FL_PUNCH_HOLE | FALLOC_FL_KEEP_SIZE,
                static_cast<off_t>(offset_), static_cast<off_t>(kPage + bytes_));
  }
}

void SharedExtents::Extent::reserve(std::span<const std::byte> part) const {
  if (part.empty()) return;
  const auto begin = static_cast<std::size_t>(part.data() - mapping_.get());
  const auto failed =
      TEMP_FAILURE_RETRY(::fallocate(owner_->descriptor(), 0, static_cast<off_t>(offset_ + begin),
                                     static_cast<off_t>(part.size())));
  if (failed != 0) refuse_extent(part.size(), text_of_errno(errno));
#ifdef MADV_POPULATE_WRITE
  // Takes page faults now rather than in the first collective, where older systems have them.
  ::madvise(mapping_.get() + begin, part.size(), MADV_POPULATE_WRITE);
#endif
}

SharedExtents::SharedExtents(int descriptor, std::size_t start, std::size_t bytes)
    : start_(start),
      bytes_(bytes),
      used_(std::reinterpret_pointer_cast<Word>(map_shared(descriptor, start, kPage))),
      descriptor_(::fcntl(descriptor, F_DUPFD_CLOEXEC, 0)) {
  require_done<CommError>(descriptor_.open(), "descriptor ", descriptor);
}

std::shared_ptr<SharedExtents::Extent> SharedExtents::allocate(std::size_t bytes) {
  check_memory_left(bytes, available_shared_memory());
  const std::size_t size = kPage + whole_pages(bytes);
  std::uint64_t used = 0;
  do {
    used = used_->load();
    if (used + size > bytes_ - kPage) {
      refuse_extent(bytes, "the addresses for them are used up" + file_limit_text());
    }
  } while (!used_->replace(used, used + size));
  return attach(start_ + kPage + used, bytes);
}

std::shared_ptr<SharedExtents::Extent> SharedExtents::attach(std::size_t offset,
                                                             std::size_t bytes) {
  const MutexLock lock(mutex_);
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
  const MutexLock lock(mutex_);
  std::erase_if(known_, [&](const Known& known) { return known.extent == &extent; });
  count_ = known_.size();
}

SharedAddress SharedExtents::find(std::span<const std::byte> buffer) const {
  if (count_ == 0 || buffer.empty()) return {};
  const MutexLock lock(mutex_);
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
  const MutexLock lock(mutex_);
  const auto known =
      std::ranges::find(known_, extent, [](const Known& each) { return each.extent->offset(); });
  return known == known_.end() ? nullptr : known->extent->data().data();
}

struct HostMemory::Head {
  Word stop_signal;
  Word replicas;          // of the job
  pthread_mutex_t mutex;  // guards the rest
  std::uint64_t used;     // slots that were ever held
  struct Slot {
    std::uint64_t key;
    std::uint64_t holders;  // 0: it is free
  } slots[kGroups];
};

// A process that dies while it holds the lock leaves, at worst, a region that is held for good.
class HostMemory::Lock : private NonCopyable {
 public:
  explicit Lock(pthread_mutex_t& mutex) : mutex_(mutex) {
    if (::pthread_mutex_lock(&mutex_) == EOWNERDEAD) ::pthread_mutex_consistent(&mutex_);
  }
  ~Lock() { ::pthread_mutex_unlock(&mutex_); }

 private:
  pthread_mutex_t& mutex_;
};

// The offsets of parts in memory. Behind the head come the recorder, the call table, the regions
// and the extents.
struct HostMemory::Layout {
  // Divides a file of `bytes`. If the size of files is limited, half of the bytes behind the call
  // table is for regions, and half for extents.
  Layout(int members, int replicas, std::size_t bytes)
      : recorder(whole_pages(sizeof(Head))),
        table(recorder + timeline::Recorder::bytes_for(replicas > 0 ? replicas : members)),
        regions(table + calls::CallTable::bytes_for(members)),
        region(region_bytes(static_cast<std::size_t>(members))),
        groups(std::min<std::size_t>(kGroups, (bytes - std::min(bytes, regions)) / 2 / region)),
        extents(regions + groups * region) {}

  // Returns the size of the file without a limit.
  static std::size_t all_bytes(int members, int replicas) {
    constexpr std::size_t kEnough = SharedExtents::kBytes;
    return Layout(members, replicas, kEnough).extents + kEnough;
  }

  std::size_t recorder;
  std::size_t table;
  std::size_t regions;
  std::size_t region;  ///< bytes of one
  std::size_t groups;  ///< their number
  std::size_t extents;
};

std::size_t HostMemory::addresses_for(int members, int replicas) {
  constexpr std::size_t kFewGroups = 3;
  const Layout layout(members, replicas, Layout::all_bytes(members, replicas));
  return layout.regions + kFewGroups * layout.region;
}

std::size_t HostMemory::bytes_for(int members, int replicas) {
  const std::size_t wanted = Layout::all_bytes(members, replicas);
  const std::size_t most = limit_of(RLIMIT_FSIZE).value_or(wanted);
  if (wanted <= most) return wanted;
  const std::size_t bytes = most / kPage * kPage;
  constexpr std::size_t kFewestGroups = 4;
  const Layout layout(members, replicas, bytes);
  require(layout.groups >= kFewestGroups,
          "the memory that replicas of a host share: files may have no more than ",
          text_of_bytes(most), " here (ulimit -f), and ",
          text_of_bytes(layout.regions + 2 * kFewestGroups * layout.region), " are needed for ",
          counted(members, "member"), ": raise the limit");
  return bytes;
}

int HostMemory::make_memory(int members, int replicas) {
  const std::size_t bytes = bytes_for(members, replicas);
  Descriptor memory(::memfd_create("lockstep-host", MFD_CLOEXEC | MFD_ALLOW_SEALING));
  if (!memory.open()) refuse("there is none", errno);
  if (::ftruncate(memory.get(), static_cast<off_t>(bytes)) != 0 ||
      ::fcntl(memory.get(), F_ADD_SEALS, F_SEAL_SHRINK | F_SEAL_GROW | F_SEAL_SEAL) != 0) {
    const int reason = errno;
    refuse(str("no ", bytes, " bytes of address room for ", members, " members"), reason);
  }
  const auto head =
      std::reinterpret_pointer_cast<Head>(map_shared(memory.get(), 0, whole_pages(sizeof(Head))));
  head->replicas.store(static_cast<std::uint64_t>(replicas));
  pthread_mutexattr_t attributes;
  ::pthread_mutexattr_init(&attributes);
  ::pthread_mutexattr_setpshared(&attributes, PTHREAD_PROCESS_SHARED);
  ::pthread_mutexattr_setrobust(&attributes, PTHREAD_MUTEX_ROBUST);
  ::pthread_mutex_init(&head->mutex, &attributes);
  ::pthread_mutexattr_destroy(&attributes);
  return memory.release();
}

HostMemory::HostMemory(int members, int descriptor)
    : head_(std::reinterpret_pointer_cast<Head>(
          map_shared(descriptor, 0, whole_pages(sizeof(Head))))) {
  const auto replicas = static_cast<int>(head_->replicas.load());
  const std::size_t bytes = size_of_file(descriptor);
  layout_ = std::make_shared<const Layout>(members, replicas, bytes);
  extents_ =
      std::make_shared<SharedExtents>(descriptor, layout_->extents, bytes - layout_->extents);
  table_ = std::make_shared<calls::CallTable>(members, descriptor, layout_->table);
  // The call table comes first, since it checks the length of the file.
  recorder_ = std::make_shared<timeline::Recorder>(replicas > 0 ? replicas : members, descriptor,
                                                   layout_->recorder);
}

Word& HostMemory::stop_signal() const noexcept {
  return head_->stop_signal;
}

std::shared_ptr<HostMemory::Region> HostMemory::hold(std::uint64_t key, std::size_t members) {
  const MutexLock own_lock(mutex_);
  if (auto known = regions_[key].lock()) return known;
  std::erase_if(regions_, [](const auto& entry) { return entry.second.expired(); });
  std::shared_ptr<Region> region;  // ends after `lock`, since its end takes that mutex
  const Lock lock(head_->mutex);
  const auto end = head_->slots + head_->used;
  auto slot = std::find_if(head_->slots, end, [&](const Head::Slot& other) {
    return other.holders > 0 && other.key == key;
  });
  const bool is_new = slot == end;
  if (is_new) {
    slot = std::find_if(head_->slots, end, [](const Head::Slot& s) { return s.holders == 0; });
    if (slot == head_->slots + layout_->groups) {
      throw CommError(str("no room for another group: ", layout_->groups,
                          " groups of this host's replicas are in use", file_limit_text()));
    }
  }
  const auto index = static_cast<int>(slot - head_->slots);
  region = std::make_shared<Region>(shared_from_this(), index, members);
  if (is_new) {
    for (std::size_t m = 0; m < members; ++m) {
      region->line(m).round.reset();
      region->line(m).verbs.store(0);
    }
    slot->key = key;
    head_->used = std::max(head_->used, static_cast<std::uint64_t>(index) + 1);
  }
  ++slot->holders;
  regions_[key] = region;
  return region;
}

void HostMemory::release(int slot) noexcept {
  const Lock lock(head_->mutex);
  --head_->slots[slot].holders;
}

HostMemory::Region::Region(std::shared_ptr<HostMemory> memory, int slot, std::size_t members)
    : memory_(std::move(memory)), slot_(slot) {
  const Layout& layout = *memory_->layout_;
  const std::size_t offset = layout.regions + static_cast<std::size_t>(slot) * layout.region;
  data_ = map_shared(memory_->extents_->descriptor(), offset, region_bytes(members));
  smalls_ = data_.get() + lines_bytes(members);
  chunks_ = smalls_ + 2 * members * kSmallBytes;
}

}  // namespace lockstep::comm
