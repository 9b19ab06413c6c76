#include "framework/watch/published.h"

#include <iterator>
#include <utility>

namespace lockstep {

void publish(PublicWords& words, std::uint64_t key, std::uint64_t number,
             const Board::Verdict& verdict) noexcept {
  const std::uint64_t order = words.begun.count() + 1;
  PublishedWords& place = words.verdicts[order % PublicWords::kKept];
  const std::uint64_t version = place.version.load();
  // Another writer has come round the ring and is here: too many verdicts for one more to matter.
  if (version % 2 != 0 || !place.version.replace(version, version + 1)) return;
  place.order.store(order);
  place.key.store(key);
  place.number.store(number);
  place.kind.store(static_cast<std::uint64_t>(verdict.kind));
  place.settled.store(verdict.settled ? 1 : 0);
  write_text(place.text, std::size(place.text), verdict.text);
  place.version.store(version + 2);
  words.published.count();
}

std::optional<Board::Verdict> published(const PublicWords& words, std::uint64_t key,
                                        std::uint64_t number) {
  std::optional<Board::Verdict> found;
  std::uint64_t first = ~std::uint64_t{0};
  for (const PublishedWords& place : words.verdicts) {
    const std::uint64_t version = place.version.load();
    const std::uint64_t order = place.order.load();
    if (order == 0 || order > first || version % 2 != 0) continue;
    if (place.key.load() != key || place.number.load() != number) continue;
    Board::Verdict verdict{.kind = static_cast<Board::Verdict::Kind>(place.kind.load()),
                           .text = read_text(place.text, std::size(place.text)),
                           .settled = place.settled.load() != 0};
    if (place.version.load() != version) continue;
    first = order;
    found = std::move(verdict);
  }
  return found;
}

}  // namespace lockstep
