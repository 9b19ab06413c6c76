#include <algorithm>
#include <cstdint>
#include <filesystem>
#include <iostream>
#include <map>
#include <random>
#include <string>
#include <utility>
#include <vector>

#include <sys/stat.h>

#include "framework/base/errors.h"
#include "framework/storage/checkpoint_folder.h"
#include "framework/storage/checkpoint_reader.h"
#include "tests/catch.h"
#include "tests/storage/sample_checkpoint.h"
#include "tests/support/files.h"
#include "tests/support/settings.h"

using namespace lockstep;
namespace fs = std::filesystem;

namespace {

const std::vector<std::string> kSampleFiles{"manifest.json", "replica-0.safetensors",
                                            "replica-1.safetensors"};

// The checkpoint of a step, and the damages that it gets.
class DamagedCheckpoint {
 public:
  DamagedCheckpoint(fs::path folder, const fs::path& other, std::uint64_t seed)
      : folder_(std::move(folder)), random_(seed) {
    for (const std::string& name : kSampleFiles) {
      whole_[name] = testing::read_text(folder_ / name);
      other_[name] = testing::read_text(other / name);
    }
  }

  // Does one damage, and says which.
  std::string damage() {
    const std::string name = kSampleFiles[below(kSampleFiles.size())];
    std::string bytes = whole_[name];
    const std::size_t at = below(bytes.size());
    switch (below(13)) {
      case 0:
      case 1:
      case 2: {
        const auto change = static_cast<char>(1 + below(255));
        for (std::size_t i = at; i < std::min(bytes.size(), at + 1 + below(4)); ++i) {
          bytes[i] = static_cast<char>(bytes[i] ^ change);
        }
        return write(name, bytes, "a changed byte");
      }
      case 3:
        bytes[below(8)] = static_cast<char>(bytes[0] + 1 + static_cast<char>(below(200)));
        return bytes == whole_[name] ? damage() : write(name, bytes, "a changed length");
      case 4:
        return write(name, bytes.substr(0, at), "a cut file");
      case 5:
        return write(name, bytes + std::string(1 + below(100), static_cast<char>(random_())),
                     "an appended text");
      case 6:
        return write(name, bytes.erase(at, 1 + below(20)), "bytes that are missing");
      case 7: {
        const std::string second = kSampleFiles[below(kSampleFiles.size())];
        if (second == name) return damage();
        (void)write(name, whole_[second], "");
        return write(second, bytes, "files exchanged");
      }
      case 8:
        return write(name, other_[name], "a file of another step");
      case 9:
        fs::rename(folder_ / name, folder_ / "renamed");
        return name + ": renamed";
      case 10:
        fs::remove(folder_ / name);
        if (below(2) == 0) return name + ": removed";
        if (below(2) == 0 && ::mkfifo((folder_ / name).c_str(), 0600) == 0)
          return name + ": a pipe";
        fs::create_directory(folder_ / name);
        return name + ": a folder";
      case 11:
        fs::rename(folder_ / name, folder_ / "renamed");
        fs::create_symlink(below(2) == 0 ? "renamed" : name, folder_ / name);
        return name + ": a link";
      default:
        return write(name, "", "an empty file");
    }
  }

  void restore() const {
    fs::remove_all(folder_);
    fs::create_directory(folder_);
    for (const auto& [name, bytes] : whole_) testing::write_text(folder_ / name, bytes);
  }

 private:
  std::size_t below(std::size_t end) { return random_() % end; }
  std::string write(const std::string& name, const std::string& bytes, const std::string& what) {
    testing::write_text(folder_ / name, bytes);
    return name + ": " + what;
  }

  fs::path folder_;
  std::map<std::string, std::string> whole_;
  std::map<std::string, std::string> other_;
  std::mt19937_64 random_;
};

// Verifies a checkpoint. Returns "whole", "refused", or the error that should not happen.
std::string finding(const fs::path& folder) {
  try {
    storage::CheckpointReader(folder).verify();
    return "whole";
  } catch (const Error& error) {
    const bool is_named = std::string(error.what()).find(folder.string()) != std::string::npos;
    return is_named ? "refused" : std::string("refused without a name: ") + error.what();
  } catch (const std::exception& error) {
    return std::string("an error of another type: ") + error.what();
  }
}

}  // namespace

TEST_CASE("a damaged checkpoint is refused, whatever the damage, and a restored one is whole",
          "[bulk]") {
  std::cout << "checkpoint damages: LOCKSTEP_SEED=" << testing::seed() << std::endl;
  const testing::TemporaryFolder home;
  const storage::CheckpointFolder folder(fs::canonical(home.path()));
  for (const std::int64_t step : {12, 13}) testing::publish_sample(folder, step);
  DamagedCheckpoint checkpoint(folder.of_step(12), folder.of_step(13), testing::seed());
  std::map<std::string, int> damages;
  for (int i = 0; i < 1500; ++i) {
    const std::string damage = checkpoint.damage();
    ++damages[damage];
    const std::string damaged = finding(folder.of_step(12));
    checkpoint.restore();
    const std::string restored = finding(folder.of_step(12));
    if (damaged != "refused" || restored != "whole") {
      FAIL_CHECK("after " << i << " others, " << damage << ": " << damaged
                          << ", then restored: " << restored);
    }
  }
  CHECK(damages.size() > 30);
  CHECK(finding(folder.of_step(13)) == "whole");
}

// A manifest and the header of a file, each with a checksum that is right after the damage.
TEST_CASE("a checkpoint with a damage that has its own checksum is refused or right", "[bulk]") {
  const testing::TemporaryFolder home;
  const fs::path folder = fs::canonical(home.path());
  storage::Manifest manifest = testing::sample_manifest(12);
  testing::write_files(manifest, folder);
  const std::string whole = testing::read_text(folder / manifest.files[0].name);
  std::mt19937_64 random(testing::seed());
  std::size_t refused = 0;
  for (int i = 0; i < 1000; ++i) {
    std::string bytes = whole;
    const std::size_t at = random() % bytes.size();
    bytes[at] = static_cast<char>(bytes[at] ^ static_cast<char>(1 + random() % 255));
    testing::write_text(folder / manifest.files[0].name, bytes);
    manifest.files[0].checksum = testing::checksum_text(bytes);
    testing::write_text(folder / "manifest.json", write_manifest(manifest));
    const std::string found = finding(folder);
    if (found == "refused") ++refused;
    if (found != "refused" && found != "whole") FAIL_CHECK(at << ": " << found);
  }
  CHECK(refused > 500);  // the header; changed elements are right, by this checksum
  CHECK(refused < 1000);
}
