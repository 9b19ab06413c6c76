#include "framework/comm/shared/allocation.h"

#include <algorithm>
#include <array>
#include <cstdint>
#include <string>
#include <utility>
#include <vector>

#include "framework/base/errors.h"
#include "framework/base/pages.h"
#include "framework/base/shard.h"
#include "framework/base/text.h"

namespace lockstep {
namespace {

// What each member tells the others of an attempt.
struct Outcome {
  std::uint64_t offset = 0;
  std::array<char, 248> error{};  ///< ends with a zero; empty: it went well
};

// Attempts the same on all members; if it fails on one, it fails on all.
template <typename Attempt>
Outcome attempt_together(Communicator& group, const Attempt& attempt) {
  Outcome own;
  try {
    attempt(own);
  } catch (const CommError& error) {
    const std::string_view text = error.what();
    std::copy_n(text.data(), std::min(text.size(), own.error.size() - 1), own.error.data());
  }
  std::vector<Outcome> all(static_cast<std::size_t>(group.size()));
  group.all_gather(std::as_bytes(std::span(&own, 1)), std::as_writable_bytes(std::span(all)));
  for (std::size_t place = 0; place < all.size(); ++place) {
    if (all[place].error[0] != '\0') {
      throw CommError(str("replica ", place, ": ", all[place].error.data()));
    }
  }
  return all[0];
}

}  // namespace

// The first member's extent, which the others attach to while it holds it. Each then takes the
// memory of a part itself, so that it is near to the core that runs it.
SymmetricBuffer allocate_shared(Communicator& group, SharedExtents& extents, std::size_t bytes,
                                Copies copies) {
  const auto count = static_cast<std::size_t>(group.size());
  const auto me = static_cast<std::size_t>(group.rank());
  const std::size_t stride = whole_pages(bytes);
  const std::size_t total = copies == Copies::one ? stride : count * stride;
  std::shared_ptr<SharedExtents::Extent> extent;
  const Outcome offer = attempt_together(group, [&](Outcome& own) {
    if (me != 0) return;
    extent = extents.allocate(total);
    own.offset = extent->offset();
  });
  attempt_together(group, [&](Outcome&) {
    if (me != 0) extent = extents.attach(offer.offset, total);
    const Shard pages = shard(static_cast<std::int64_t>(total / kPage), group.size(), group.rank());
    extent->reserve(extent->data().subspan(static_cast<std::size_t>(pages.offset) * kPage,
                                           static_cast<std::size_t>(pages.size) * kPage));
  });
  const auto data = extent->data();
  return {.own = copies == Copies::one ? data.first(bytes) : data.subspan(me * stride, bytes),
          .is_common = copies == Copies::one,
          .memory = std::move(extent)};
}

}  // namespace lockstep
