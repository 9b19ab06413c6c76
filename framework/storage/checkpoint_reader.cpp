#include "framework/storage/checkpoint_reader.h"

#include <algorithm>
#include <functional>
#include <set>
#include <span>
#include <string>
#include <system_error>
#include <vector>

#include <fcntl.h>
#include <sys/stat.h>

#include "framework/base/errors.h"
#include "framework/base/limits.h"
#include "framework/base/memory.h"
#include "framework/base/range.h"
#include "framework/base/text.h"
#include "framework/storage/checkpoint_folder.h"
#include "framework/storage/checksum.h"
#include "framework/storage/file.h"

namespace fs = std::filesystem;

namespace lockstep::storage {
namespace {

// The most files that are open at once, so that a thousand replicas' files can be read.
constexpr std::size_t kMostOpen = 128;

fs::path resolved(const fs::path& folder) {
  std::error_code error;
  fs::path path = fs::canonical(CheckpointFolder::resolved(folder), error);
  require<DataError>(!error, "checkpoint ", folder.string(), ": ", text_of_errno(error.value()));
  return path;
}

// Returns the bytes of a file. A writer of checkpoints makes regular files only; to open another
// kind may block or lead out of the folder.
std::uint64_t regular_size(const fs::path& path) {
  struct stat status {};
  require_done<DataError>(::lstat(path.c_str(), &status) == 0, path.string());
  require<DataError>(S_ISREG(status.st_mode), path.string(), " is no regular file");
  return static_cast<std::uint64_t>(status.st_size);
}

// A run's folder and the folder of its checkpoints have links to the newest: these are named.
[[noreturn]] void refuse_folder(const fs::path& folder) {
  std::string text = str(folder.string(), " is no checkpoint: it has no ", kManifestName);
  for (const char* const link : {"latest", "checkpoints/latest"}) {
    std::error_code error;
    if (!fs::exists(CheckpointFolder::resolved(folder / link) / kManifestName, error)) continue;
    text += str("; did you mean ", (folder / link).string(), "?");
  }
  throw DataError(text);
}

Manifest read_manifest(const fs::path& folder) {
  const fs::path path = folder / kManifestName;
  std::error_code missing;
  if (!fs::exists(fs::symlink_status(path, missing))) refuse_folder(folder);
  const std::uint64_t size = regular_size(path);
  require<DataError>(size <= kLongestManifest, path.string(), " has ", size,
                     " bytes, and the most are ", kLongestManifest);
  const std::string lack = lack_of_memory(size);
  require<DataError>(lack.empty(), path.string(), " takes ", lack);
  std::string text(size, '\0');
  File(path, O_RDONLY).read(0, std::as_writable_bytes(std::span(text)));
  try {
    return parse_manifest(text);
  } catch (const DataError& error) {
    throw DataError(str(path.string(), ": ", error.what()));
  }
}

std::string in_words(const std::string& dtype, const std::vector<std::uint64_t>& shape) {
  return str(dtype, " [", join(shape), "]");
}

// Finds a piece in its file. Throws DataError unless it has the manifest's dtype and one dimension.
const StoredTensor& stored_piece(const SafetensorsFile& file, const fs::path& path,
                                 const ManifestTensor& tensor, const ManifestPiece& piece) {
  const StoredTensor* const stored = file.find(tensor.name);
  const std::vector shape{piece.size};
  if (stored != nullptr && stored->dtype == tensor.dtype && stored->shape == shape) return *stored;
  throw DataError(str(path.string(), ": tensor '", cut(tensor.name), "' is ",
                      stored == nullptr ? "missing" : in_words(stored->dtype, stored->shape),
                      ", and by ", kManifestName, " it is ", in_words(tensor.dtype, shape)));
}

}  // namespace

CheckpointReader::CheckpointReader(const fs::path& folder, CheckSizes check_sizes)
    : folder_(resolved(folder)), manifest_(read_manifest(folder_)) {
  const auto step = CheckpointFolder::step_of(folder_);
  require<DataError>(!step || *step == manifest_.step, folder_.string(),
                     " has a checkpoint of another step: by ", kManifestName, " it is of ",
                     manifest_.step);
  if (check_sizes == CheckSizes::when_read) return;
  for (std::size_t file = 0; file < manifest_.files.size(); ++file) check_size(file);
}

const ManifestTensor* CheckpointReader::find(std::string_view name) const noexcept {
  const auto found =
      std::ranges::lower_bound(manifest_.tensors, name, std::less<>(), &ManifestTensor::name);
  return found == manifest_.tensors.end() || found->name != name ? nullptr : &*found;
}

void CheckpointReader::verify(std::size_t file) const {
  check_size(file);
  const fs::path path = path_of(file);
  const ManifestFile& listed = manifest_.files[file];
  Checksum checksum;
  {
    const File bytes(path, O_RDONLY);
    bytes.look(0, listed.bytes, [&](ConstBytes part) { checksum.add(part); });
  }
  require<DataError>(checksum.text() == listed.checksum, path.string(),
                     " is damaged: its bytes have the checksum ", checksum.text(), ", and by ",
                     kManifestName, " ", listed.checksum);

  const SafetensorsFile stored(path);
  std::set<std::string_view> names;
  for (const ManifestTensor& tensor : manifest_.tensors) {
    const auto piece = std::ranges::find(tensor.pieces, file, &ManifestPiece::file);
    if (piece == tensor.pieces.end()) continue;
    (void)stored_piece(stored, path, tensor, *piece);
    names.insert(tensor.name);
  }
  for (const StoredTensor& tensor : stored.header().tensors) {
    require<DataError>(names.contains(tensor.name), path.string(), ": tensor '", cut(tensor.name),
                       "' is not in ", kManifestName);
  }
}

void CheckpointReader::verify() const {
  for (std::size_t file = 0; file < manifest_.files.size(); ++file) verify(file);
}

void CheckpointReader::read(const ManifestTensor& tensor, std::uint64_t offset, Bytes to) const {
  const std::size_t element = element_bytes(tensor.dtype);
  require(element > 0 && to.size() % element == 0, "checkpoint: ", to.size(), " bytes of tensor '",
          cut(tensor.name), "', whose elements have ", element);
  const std::uint64_t elements =
      tensor.pieces.empty() ? 0 : tensor.pieces.back().offset + tensor.pieces.back().size;
  const std::uint64_t count = to.size() / element;
  require(offset <= elements && count <= elements - offset, "checkpoint: elements ", offset, " to ",
          offset, " + ", count, " of tensor '", cut(tensor.name), "', which has ", elements);
  for (const ManifestPiece& piece : tensor.pieces) {
    const auto common = intersection<std::uint64_t>({piece.offset, piece.size}, {offset, count});
    if (common.size == 0) continue;
    const SafetensorsFile& file = opened(piece.file);
    file.read(stored_piece(file, path_of(piece.file), tensor, piece),
              (common.offset - piece.offset) * element,
              to.subspan((common.offset - offset) * element, common.size * element));
  }
}

fs::path CheckpointReader::path_of(std::size_t file) const {
  require(file < manifest_.files.size(), "checkpoint: file ", file, " of ", manifest_.files.size());
  return folder_ / manifest_.files[file].name;
}

void CheckpointReader::check_size(std::size_t file) const {
  const fs::path path = path_of(file);
  const std::uint64_t size = regular_size(path);
  const std::uint64_t right = manifest_.files[file].bytes;
  require<DataError>(size == right, path.string(), " has ", size, " bytes, and by ", kManifestName,
                     " ", right);
}

const SafetensorsFile& CheckpointReader::opened(std::size_t file) const {
  const auto found = files_.find(file);
  if (found != files_.end()) return found->second;
  check_size(file);
  if (files_.size() == kMostOpen) files_.clear();
  return files_.try_emplace(file, path_of(file)).first->second;
}

}  // namespace lockstep::storage
