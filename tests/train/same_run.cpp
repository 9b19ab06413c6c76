#include "tests/train/same_run.h"

#include "tests/catch.h"
#include "tests/support/files.h"
#include "tests/train/train_program.h"

namespace lockstep::testing {

using Json = nlohmann::json;

void check_same(const std::filesystem::path& run, const std::filesystem::path& expected) {
  const Json result = result_of(run);
  const Json other = result_of(expected);
  for (const char* field : {"steps", "loss", "eval", "parameters_sha256"}) {
    INFO(field);
    CHECK(result[field] == other[field]);
  }
  CHECK(metrics_of(run) == metrics_of(expected));
  CHECK(curves_of(run) == curves_of(expected));
}

void rewrite_manifest(const std::filesystem::path& checkpoint,
                      const std::function<void(storage::Manifest& manifest)>& change) {
  const std::filesystem::path file = checkpoint / storage::kManifestName;
  storage::Manifest manifest = storage::parse_manifest(read_text(file));
  change(manifest);
  write_text(file, storage::write_manifest(manifest));
}

}  // namespace lockstep::testing
