#include "framework/storage/staged_shard.h"

#include <filesystem>
#include <span>
#include <stop_token>
#include <string>
#include <vector>

#include <sys/stat.h>

#include "framework/base/errors.h"
#include "framework/storage/safetensors.h"
#include "tests/catch.h"
#include "tests/storage/sample_checkpoint.h"
#include "tests/support/files.h"
#include "tests/support/message_of.h"

namespace fs = std::filesystem;
using namespace lockstep;
using storage::StagedShard;

TEST_CASE("a staged shard is written as the umask says, with the checksum of its bytes") {
  const testing::TemporaryFolder home;
  const mode_t before = ::umask(027);
  const fs::path path = home.path() / "shard";
  const std::vector<float> values{1, 2, 3};
  StagedShard shard;
  for (int round = 0; round < 2; ++round) {  // the second replaces the first
    shard.clear();
    shard.add("w", "F32", {5}, 1, std::as_bytes(std::span(values)));
    const storage::ManifestFile written = shard.write(path);
    CHECK(written.name == "shard");
    const std::string bytes = testing::read_text(path);
    CHECK(written.bytes == bytes.size());
    CHECK(written.checksum == testing::checksum_text(bytes));
    CHECK(static_cast<unsigned>(fs::status(path).permissions()) == 0640);
    const storage::SafetensorsFile file(path);
    REQUIRE(file.find("w") != nullptr);
    std::vector<float> read(3);
    file.read(*file.find("w"), 0, std::as_writable_bytes(std::span(read)));
    CHECK(read == values);
  }
  ::umask(before);
}

TEST_CASE("a shard that nobody waits for any more is given up") {
  const testing::TemporaryFolder home;
  StagedShard shard;
  shard.add("w", "U8", {1}, 0, std::as_bytes(std::span("x", 1)));
  std::stop_source stop;
  stop.request_stop();
  CHECK_THAT(testing::message_of<Error>(
                 [&] { (void)shard.write(home.path() / "shard", stop.get_token()); }),
             ContainsSubstring("is given up"));
}
