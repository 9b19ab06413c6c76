#include "framework/comm/shared/rounds.h"

#include <cstring>
#include <utility>

#include <sched.h>

#include "framework/base/errors.h"
#include "framework/base/random.h"

namespace lockstep {
namespace {

void tell(HostMemory::Call::Buffer& where, const SharedPlace& place) {
  where.extent.store(place.extent);
  where.at.store(place.at);
}

}  // namespace

SharedRounds::SharedRounds(std::shared_ptr<SharedLink> link, std::vector<int> members,
                           std::size_t own_place, std::uint64_t channel)
    : link_(std::move(link)), members_(std::move(members)), own_place_(own_place) {
  if (count() == 1) return;
  Key key(channel);
  for (const int member : members_) key = key.fold(static_cast<std::uint64_t>(member));
  region_ = link_->memory().hold(key.bits(), count());
  // It goes on where this replica has left off with an object before this.
  round_ = region_->line(me()).round.value();
  verbs_ = region_->line(me()).verbs.load();
}

void SharedRounds::next_verb() {
  region_->line(me()).verbs.store(++verbs_);
}

void SharedRounds::meet(Verb::Kind verb, std::uint64_t mark, std::size_t bytes, std::size_t said,
                        ConstBytes input, ConstBytes output) {
  link_->check(user_);
  const std::uint64_t sum = Key(mark).fold(static_cast<std::uint64_t>(verb)).fold(bytes).bits();
  HostMemory::Call& own = call_of(me());
  own.mark.store(sum);
  const SharedExtents& extents = *link_->memory().extents();
  tell(own.input, extents.find(input));
  tell(own.output, extents.find(output));
  link_->ledger().bytes_sent += said;
  finish_round();
  for (std::size_t place = 0; place < count(); ++place) {
    if (call_of(place).mark.load() != sum) {
      throw CollectiveMismatch("replicas called different collectives, or with other sizes");
    }
  }
}

void SharedRounds::finish_round() {
  const auto core = static_cast<std::uint64_t>(::sched_getcpu() + 1);
  region_->line(me()).core.store(core);
  region_->line(me()).round.raise(++round_);
  for (std::size_t step = 1; step < count(); ++step) {
    const std::size_t place = (me() + step) % count();
    const HostMemory::Line& peer = region_->line(place);
    const bool same_core = core != 0 && peer.core.load() == core;
    link_->wait(user_, peer.round, round_, members_[place], members_, same_core);
  }
  ++link_->ledger().rounds;
}

std::vector<std::byte*> SharedRounds::all_of(Buffer HostMemory::Call::*buffer) const {
  const std::uint64_t extent = (call_of(me()).*buffer).extent.load();
  if (extent == 0) return {};
  std::byte* const data = link_->memory().extents()->data_of(extent);
  std::vector<std::byte*> all;
  for (std::size_t place = 0; place < count(); ++place) {
    const Buffer& theirs = call_of(place).*buffer;
    if (theirs.extent.load() != extent) return {};
    all.push_back(data + theirs.at.load());
  }
  return all;
}

std::vector<std::byte*> SharedRounds::inputs() const {
  return all_of(&HostMemory::Call::input);
}

std::vector<std::byte*> SharedRounds::outputs() const {
  return all_of(&HostMemory::Call::output);
}

bool SharedRounds::output_is_common() const {
  const Buffer& own = call_of(me()).output;
  if (own.extent.load() == 0) return false;
  for (std::size_t place = 0; place < count(); ++place) {
    const Buffer& theirs = call_of(place).output;
    if (theirs.extent.load() != own.extent.load() || theirs.at.load() != own.at.load()) {
      return false;
    }
  }
  return true;
}

void SharedRounds::write(ConstBytes message, Bytes to) {
  if (!message.empty()) std::memcpy(to.data(), message.data(), message.size());
  link_->ledger().bytes_sent += message.size();
}

}  // namespace lockstep
