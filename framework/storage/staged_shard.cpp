#include "framework/storage/staged_shard.h"

#include <algorithm>
#include <system_error>

#include <fcntl.h>
#include <sys/mman.h>

#include "framework/base/errors.h"
#include "framework/base/limits.h"
#include "framework/base/stream_copy.h"
#include "framework/base/text.h"
#include "framework/storage/checksum.h"
#include "framework/storage/file.h"
#include "framework/storage/safetensors.h"

namespace lockstep::storage {

GrowingMemory::~GrowingMemory() {
  if (memory_ != nullptr) ::munmap(memory_, capacity_);
}

void GrowingMemory::append(ConstBytes bytes) {
  constexpr std::size_t kLeast = std::size_t{1} << 20;
  if (bytes.size() > capacity_ - size_) {
    // Pages that nobody has touched take no memory.
    const std::size_t capacity = std::max({kLeast, 2 * capacity_, size_ + bytes.size()});
    void* const grown = memory_ == nullptr
                            ? ::mmap(nullptr, capacity, PROT_READ | PROT_WRITE,
                                     MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0)
                            : ::mremap(memory_, capacity_, capacity, MREMAP_MAYMOVE);
    require_done<Error>(grown != MAP_FAILED, "no memory to copy ", size_ + bytes.size(),
                        " bytes for a checkpoint");
    memory_ = static_cast<std::byte*>(grown);
    capacity_ = capacity;
  }
  stream_copy(bytes, {memory_ + size_, bytes.size()});
  size_ += bytes.size();
}

void StagedShard::clear() noexcept {
  memory_.clear();
  tensors_.clear();
}

void StagedShard::add(const std::string& name, const std::string& dtype,
                      const std::vector<std::uint64_t>& shape, std::uint64_t offset,
                      ConstBytes values) {
  const std::size_t element = element_bytes(dtype);
  require(element > 0 && values.size() % element == 0, "checkpoint: tensor '", name, "' of dtype '",
          dtype, "' has ", values.size(), " bytes");
  memory_.append(values);
  tensors_.push_back({.name = name, .dtype = dtype, .shape = shape});
  if (values.empty()) return;
  tensors_.back().pieces.push_back({.offset = offset, .size = values.size() / element});
}

ManifestFile StagedShard::write(const std::filesystem::path& path,
                                const std::stop_token& stop) const {
  SafetensorsHeader header;
  std::vector<std::pair<std::size_t, std::size_t>> parts;  // of memory_: begin and end
  // Wider elements first: then each tensor begins at a multiple of its element's size.
  for (const std::size_t width : {8U, 4U, 2U, 1U}) {
    std::size_t end = 0;
    for (const ManifestTensor& tensor : tensors_) {
      for (const ManifestPiece& piece : tensor.pieces) {
        const std::size_t begin = end;
        const std::size_t element = element_bytes(tensor.dtype);
        end += piece.size * element;
        if (element != width) continue;
        header.tensors.push_back(
            {.name = tensor.name, .dtype = tensor.dtype, .shape = {piece.size}});
        // Pieces that follow each other in memory are written at once.
        if (parts.empty() || parts.back().second != begin) parts.emplace_back(begin, begin);
        parts.back().second = end;
      }
    }
  }
  std::error_code missing;
  std::filesystem::remove(path, missing);  // what a killed writer has left
  const File file(path, O_WRONLY | O_CREAT | O_EXCL);
  Checksum checksum;
  std::uint64_t written = 0;
  std::uint64_t begun = 0;  // bytes that are on their way to the disk
  constexpr std::uint64_t kBegun = std::uint64_t{8} << 20;
  const auto write = [&](ConstBytes bytes) {
    // In parts that stay in a near cache between the checksum and the copy to the kernel.
    constexpr std::size_t kPart = std::size_t{1} << 18;
    for (; !bytes.empty(); bytes = bytes.subspan(std::min(kPart, bytes.size()))) {
      if (stop.stop_requested()) throw Error(str(path.string(), " is given up"));
      const ConstBytes part = bytes.first(std::min(kPart, bytes.size()));
      checksum.add(part);
      file.write({reinterpret_cast<const char*>(part.data()), part.size()});
      written += part.size();
      if (written - begun >= kBegun) {
        file.begin_sync(begun, written - begun);
        begun = written;
      }
    }
  };
  const std::string beginning = write_header(header);
  write(std::as_bytes(std::span(beginning)));
  for (const auto& [begin, end] : parts) write(memory_.bytes().subspan(begin, end - begin));
  file.sync();
  return {.name = path.filename(), .bytes = written, .checksum = checksum.text()};
}

}  // namespace lockstep::storage
