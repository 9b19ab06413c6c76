// What the README says of training without code, as written there.

#include <cstdint>
#include <filesystem>
#include <fstream>
#include <iterator>
#include <string>

#include "framework/base/random.h"
#include "framework/base/text.h"
#include "tests/catch.h"
#include "tests/formats/sample_files.h"
#include "tests/support/temporary_folder.h"
#include "tests/train/train_in_fork.h"
#include "tests/train/train_program.h"

using namespace lockstep;
using namespace lockstep::testing;

namespace {

// The README's first block of YAML behind `heading`.
std::string yaml_behind(const std::string& heading) {
  std::ifstream in(std::string(LOCKSTEP_SOURCE_DIR) + "/README.md");
  const std::string readme{std::istreambuf_iterator<char>(in), {}};
  const std::string fence = "```yaml\n";
  const std::size_t start = readme.find(fence, readme.find(heading)) + fence.size();
  return readme.substr(start, readme.find("```", start) - start);
}

// A picture of noise, which is bright on the left in one class and on the right in the other.
std::string picture(std::uint64_t number, bool is_right) {
  constexpr std::uint32_t kHeight = 36, kWidth = 44;
  std::string rows;
  for (std::uint32_t y = 0; y < kHeight; ++y) {
    rows += '\0';  // no filter
    for (std::uint32_t x = 0; x < kWidth; ++x) {
      const std::uint64_t noise = Key(number).draw(y * kWidth + x) >> 57;
      const bool is_bright = (x >= kWidth / 2) == is_right;
      rows += static_cast<char>(noise + (is_bright ? 120 : 0));
    }
  }
  return png_file({.width = kWidth, .height = kHeight, .color_type = 0}, rows);
}

}  // namespace

TEST_CASE("a folder of pictures is trained on by the README's YAML alone") {
  const TemporaryFolder folder;
  std::uint64_t number = 0;
  for (const auto& [set, count] : {std::pair{"train", 70}, {"val", 10}, {"test", 20}}) {
    for (const std::string name : {"left", "right"}) {
      const std::string place = str("pictures/", set, "/", name);
      std::filesystem::create_directories(folder.path(place));
      for (int i = 0; i < count; ++i) {
        folder.write(str(place, "/", i, ".png"), picture(number++, name == "right"));
      }
    }
  }
  folder.write("pictures.yaml", yaml_behind("A folder of images needs no code."));
  const auto check = [&](const std::string& run, const std::string& keys) {
    const Ended end =
        train(folder.path(), Flags{"--config", "pictures.yaml", "--output", run} + set(keys));
    INFO(end.out << end.err);
    REQUIRE(end.status == 0);
    const auto result = read_json(folder.path() / run / "result.json");
    CHECK(result["eval"].contains("accuracy"));
    CHECK(result["validation"].contains("accuracy"));
    CHECK(std::filesystem::exists(folder.path() / run / "checkpoints/best"));
    return result;
  };
  check("as_written", "trainer.epochs=1");
  // Shorter, and without what makes left and right alike.
  const auto result = check("trained",
                            "model.depth=8 data.batch_size=8 data.flip=false "
                            "trainer.epochs=3 trainer.eval_every=5");
  CHECK(result["eval"]["accuracy"] > 0.9);
}
