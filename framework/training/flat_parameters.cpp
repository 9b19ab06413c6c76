#include "framework/training/flat_parameters.h"

#include <algorithm>
#include <cstring>
#include <exception>
#include <map>
#include <utility>

#include <ATen/EmptyTensor.h>
#include <ATen/ops/empty.h>
#include <ATen/ops/empty_like.h>
#include <ATen/ops/empty_strided.h>
#include <c10/core/GradMode.h>

#include "framework/base/errors.h"
#include "framework/base/logging.h"
#include "framework/base/random.h"
#include "framework/base/text.h"
#include "framework/collectives/axis_index.h"
#include "framework/collectives/in_place.h"
#include "framework/collectives/message.h"
#include "framework/timeline/recorder.h"
#include "framework/training/agreement.h"
#include "framework/training/bucket_sizes.h"
#include "framework/training/module_parameters.h"
#include "framework/training/storage_memory.h"

namespace lockstep::training {
namespace {

const void* storage_of(const at::Tensor& tensor) {
  return tensor.storage().unsafeGetStorageImpl();
}

std::int64_t version_of(const at::Tensor& tensor) {
  const auto& counter = tensor.unsafeGetTensorImpl()->version_counter();
  return counter.enabled() ? counter.current_version() : 0;
}

// A hash of a few elements, contiguous, in which a write to all of them shows.
std::uint64_t sample_of(const at::Tensor& tensor) {
  constexpr std::int64_t kElements = 4;
  std::uint64_t hash = 0;
  if (tensor.numel() == 0) return hash;
  const auto* const bytes = static_cast<const char*>(tensor.data_ptr());
  for (std::int64_t i = 0; i < kElements; ++i) {
    const auto index = static_cast<std::size_t>((tensor.numel() - 1) * i / (kElements - 1));
    std::uint64_t element = 0;
    std::memcpy(&element, bytes + index * tensor.itemsize(), tensor.itemsize());
    hash = Key(hash).fold(element).bits();
  }
  return hash;
}

bool covers_storage(const at::Tensor& tensor) {
  return tensor.is_non_overlapping_and_dense() && tensor.storage_offset() == 0 &&
         tensor.storage().nbytes() == static_cast<std::size_t>(tensor.numel()) * tensor.itemsize();
}

}  // namespace

FlatParameters::FlatParameters(std::vector<std::string> names, std::vector<at::Tensor> parameters,
                               const BufferPlan& plan, AxisNames axis_name)
    : names_(std::move(names)),
      parameters_(std::move(parameters)),
      plan_(plan),
      axis_(std::move(axis_name)),
      buckets_(layout_.buckets().size()),
      placed_(parameters_.size()) {
  const c10::AutoGradMode no_grad(false);
  make_whole();
  for (std::size_t i = 0; i < parameters_.size(); ++i) {
    placed_[i].sizes = parameters_[i].sizes().vec();
    placed_[i].dtype = parameters_[i].scalar_type();
    if (parameters_[i].is_contiguous()) continue;
    placed_[i].strides = parameters_[i].strides().vec();
    bytes_ += static_cast<std::int64_t>(parameters_[i].nbytes());
  }
  // Bucket by bucket: each frees the memory that its parameters had.
  for (std::size_t index = 0; index < buckets_.size(); ++index) {
    is_cut(index) ? cut(index) : place(index);
    bytes_ += total_bytes({is_cut(index) ? buckets_[index].own : buckets_[index].memory});
    if (!is_cut(index)) uncut_bytes_ += total_bytes({buckets_[index].memory});
  }
}

MemoryUse FlatParameters::use() const {
  return {.parameters = bytes_,
          .communication = gathered_peak_,
          .shared_parameters = holders() > 1 ? uncut_bytes_ : 0,
          .holders = holders()};
}

bool FlatParameters::updates_all() const {
  return updates_ == ParameterUpdates::all && std::ssize(holders_) == axis_size(axis_);
}

// Whether this replica writes what all that hold its copy would write.
bool FlatParameters::writes_first() const {
  return own_holders_[0] == replica_;
}

// The replicas that hold a copy then see what any of them has written to it.
void FlatParameters::wait_for_holders() const {
  if (std::ssize(holders_) < axis_size(axis_)) barrier(axis_, holders_);
}

std::vector<FlatParameters::Owned> FlatParameters::own(std::size_t index) const {
  const Bucket& bucket = buckets_[index];
  if (is_cut(index)) return {{plan_.buckets[index].shard, bucket.own}};
  return mapped(plan_.updated(index, own_holders_), [&](const Range& place) {
    return Owned{place, bucket.memory.narrow(0, place.offset, place.size)};
  });
}

// Moves the parameters of a bucket into memory of its size.
void FlatParameters::place(std::size_t index) {
  const tree::FlatBucket& bucket = layout_.buckets()[index];
  const PlannedTensors planned = plan_.buckets[index].parameters;
  CommonZeros zeros = common_zeros({planned.size}, planned.dtype, axis_);
  holders_ = std::move(zeros.holders);
  own_holders_ = *std::ranges::find_if(
      holders_, [&](const auto& holders) { return std::ranges::count(holders, replica_) > 0; });
  buckets_[index].memory = std::move(zeros.tensor);
  const bool writes = writes_first();
  for (const std::size_t item : bucket.items) {
    const at::Tensor& parameter = parameters_[item];
    if (writes && !lacks_memory(parameter)) memory_of(item).copy_(parameter);
  }
  wait_for_holders();
  for (const std::size_t item : bucket.items) put(item, memory_of(item));
}

// Copies this replica's shard of a bucket, and hides its parameters.
void FlatParameters::cut(std::size_t index) {
  const Range part = plan_.buckets[index].shard;
  const at::Tensor& own = buckets_[index].own = plan_.buckets[index].parameters.zeros();
  for (const tree::FlatPiece& piece : layout_.pieces(index, part)) {
    const at::Tensor& parameter = parameters_[piece.item];
    if (lacks_memory(parameter)) continue;
    const std::int64_t begin = piece.offset - layout_.place(piece.item).offset;
    own.narrow(0, piece.offset - part.offset, piece.size)
        .copy_(parameter.contiguous().view({-1}).narrow(0, begin, piece.size));
  }
  for (const std::size_t item : layout_.buckets()[index].items) {
    placed_[item].storage = parameters_[item].storage();
    hide(item);
  }
}

FlatParameters::~FlatParameters() {
  const c10::AutoGradMode no_grad(false);
  if (std::uncaught_exceptions() == 0 && !has_told_) tell_writes();
  for (std::size_t i = 0; i < parameters_.size(); ++i) {
    try {
      let_go(i);
      if (has_storage(i)) {
        set_storage_memory(parameters_[i].storage(), parameters_[i].detach().clone());
      }
    } catch (const std::exception&) {
      // Without memory for it the parameter stays in the bucket, which lives as long.
    }
  }
}

// Those that no later call will notice. Memory that replicas hold together has changed for all of
// them: there the counter says which one has written.
void FlatParameters::tell_writes() const {
  std::vector<std::string> written;
  for (std::size_t i = 0; i < parameters_.size(); ++i) {
    if (state_of(i) != State::written) continue;
    const bool is_own = placed_[i].was_written || holders() == 1 ||
                        version_of(parameters_[i]) != placed_[i].version;
    if (is_own) written.push_back(str("'", names_[i], "'"));
  }
  if (written.empty()) return;
  log_warning(str("replica ", replica_, ", over ", axis_.text(), ": ", listed(written),
                  written.size() == 1 ? " was" : " were",
                  " written to after the trainer's last call, which nothing has compared with the "
                  "other replicas' values: write parameters in edit_parameters(), or when their "
                  "trainer has ended"));
}

at::Tensor FlatParameters::memory_of(std::size_t index) const {
  const tree::FlatPosition& place = layout_.place(index);
  return collectives::part_of(buckets_[place.bucket].memory, place.offset, placed_[index].sizes);
}

void FlatParameters::put(std::size_t index, const at::Tensor& memory) {
  const Placed& placed = placed_[index];
  at::Tensor own = memory;
  if (!placed.strides.empty()) {
    own = at::empty_strided(placed.sizes, placed.strides, memory.options()).copy_(memory);
  }
  set_storage_memory(parameters_[index].storage(), own);
  note(index);
}

// Whether its elements lie in the order in which its trainer took them.
bool FlatParameters::keeps_order(std::size_t index) const {
  const at::Tensor& parameter = parameters_[index];
  const std::vector<std::int64_t>& strides = placed_[index].strides;
  return strides.empty() ? parameter.is_contiguous() : parameter.strides() == strides;
}

void FlatParameters::note(std::size_t index) {
  const at::Tensor& parameter = parameters_[index];
  placed_[index].storage = parameter.storage();
  placed_[index].version = version_of(parameter);
  placed_[index].sample = sample_of(parameter);
}

// Whether it has the storage that it was left with.
bool FlatParameters::has_storage(std::size_t index) const {
  return storage_of(parameters_[index]) == placed_[index].storage.unsafeGetStorageImpl();
}

// When a parameter gets another storage, tensors on the old one leave the bucket with its values.
void FlatParameters::let_go(std::size_t index) {
  const bool is_here = buckets_[layout_.place(index).bucket].memory.defined();
  if (!is_here || has_storage(index) || placed_[index].storage.use_count() <= 1) return;
  if (placed_[index].strides.empty()) {
    set_storage_memory(placed_[index].storage, memory_of(index).clone());
  }
  placed_[index].storage = {};
}

// As put(), also where the program has given the parameter another storage.
void FlatParameters::put_anew(std::size_t index, const at::Tensor& memory) {
  const Placed& placed = placed_[index];
  if (!has_storage(index) || state_of(index) == State::unfit ||
      !covers_storage(parameters_[index]) || !keeps_order(index)) {
    let_go(index);
    parameters_[index].set_data(
        placed.strides.empty() ? at::empty(placed.sizes, placed.dtype)
                               : at::empty_strided(placed.sizes, placed.strides, placed.dtype));
  }
  put(index, memory);
}

// Each parameter gets a storage that is all its own values.
void FlatParameters::make_whole() {
  struct Use {
    std::size_t begin;
    std::size_t end;
    std::size_t parameter;
  };
  std::map<const void*, std::vector<Use>> sharing;
  for (std::size_t i = 0; i < parameters_.size(); ++i) {
    const at::Tensor& parameter = parameters_[i];
    if (parameter.numel() == 0) continue;
    const auto begin = static_cast<std::size_t>(parameter.storage_offset());
    const std::size_t end = at::detail::computeStorageNbytes(parameter.sizes(), parameter.strides(),
                                                             /*itemsize=*/1, begin);
    sharing[storage_of(parameter)].push_back({begin, end, i});
  }
  for (auto& [storage, uses] : sharing) {
    std::ranges::sort(uses, {}, &Use::begin);
    for (std::size_t u = 1; u < uses.size(); ++u) {
      require(
          uses[u].begin >= uses[u - 1].end, "parameters '", names_[uses[u - 1].parameter],
          "' and '", names_[uses[u].parameter],
          "' share memory and are two tensors: register one tensor under both names, or give each "
          "its own (clone())");
    }
    for (const Use& use : uses) {
      const at::Tensor& parameter = parameters_[use.parameter];
      if (covers_storage(parameter)) continue;
      require(parameter.storage().use_count() <= uses.size(), "parameter '", names_[use.parameter],
              "' is a part, or another order, of memory that other tensors use, too: they would be "
              "left behind; give it memory of its own (set_data(clone()))");
      parameter.set_data(parameter.detach().clone());
    }
  }
}

FlatParameters::State FlatParameters::state_of(std::size_t index) const {
  const at::Tensor& parameter = parameters_[index];
  const Placed& placed = placed_[index];
  if (placed.was_written) return State::written;
  if (placed.hidden.defined() && parameter.is_meta()) return State::in_place;
  if (parameter.scalar_type() != placed.dtype || parameter.sizes() != placed.sizes ||
      parameter.layout() != at::kStrided || !parameter.device().is_cpu()) {
    return State::unfit;
  }
  if (!has_storage(index) || !keeps_order(index) || parameter.storage_offset() != 0) {
    return State::replaced;
  }
  const bool is_same =
      version_of(parameter) == placed.version && sample_of(parameter) == placed.sample;
  return is_same ? State::in_place : State::written;
}

void FlatParameters::check_fit(std::size_t index, const AxisCall& call) const {
  const at::Tensor& parameter = parameters_[index];
  const Placed& placed = placed_[index];
  call.require(state_of(index) != State::unfit, "parameter '", names_[index], "' has become ",
               parameter.sizes(), " ", at::toString(parameter.scalar_type()), " on ",
               parameter.device(), "; it was ", at::IntArrayRef(placed.sizes), " ",
               at::toString(placed.dtype),
               " when its trainer took it: make a new trainer after such a change");
}

bool FlatParameters::check(const AxisCall& call) const {
  bool any_replaced = false;
  for (std::size_t i = 0; i < parameters_.size(); ++i) {
    const State state = state_of(i);
    if (state == State::in_place) continue;
    check_fit(i, call);
    const bool is_cut = !buckets_[layout_.place(i).bucket].memory.defined();
    has_told_ = state != State::replaced || is_cut;
    call.require(state == State::replaced && !is_cut, "parameter '", names_[i], "' was ",
                 state == State::written ? "written to" : "replaced while its Block is in shards",
                 " since the last step, which replicas may do only together: write it in "
                 "edit_parameters()");
    any_replaced = true;
  }
  return any_replaced;
}

std::vector<std::size_t> FlatParameters::adopt(const AxisCall& call) {
  std::vector<at::Tensor> fresh(parameters_.size());
  for (std::size_t i = 0; i < parameters_.size(); ++i) {
    if (state_of(i) == State::replaced) fresh[i] = parameters_[i].detach().contiguous();
  }
  return take(fresh, call);
}

std::vector<std::size_t> FlatParameters::adopt_replaced(const AxisCall& call) {
  if (replicas_where(check(call), axis_) == 0) return {};
  return adopt(call);
}

std::vector<std::size_t> FlatParameters::edit(const std::function<void()>& write,
                                              const AxisCall& call) {
  const c10::AutoGradMode no_grad(false);
  std::vector<at::Tensor> fresh(parameters_.size());
  try {
    for (std::size_t i = 0; i < parameters_.size(); ++i) {
      // A value that was replaced before counts as a change, too.
      const at::Tensor values =
          state_of(i) == State::replaced ? parameters_[i].detach() : memory_of(i);
      put_anew(i, values.clone(at::MemoryFormat::Contiguous));
    }
    write();
    for (std::size_t i = 0; i < parameters_.size(); ++i) {
      check_fit(i, call);
      const at::Tensor values = parameters_[i].detach().contiguous();
      if (!has_same_bytes(values, memory_of(i))) fresh[i] = values.clone();
    }
    const auto changed = take(fresh, call);
    for (std::size_t index = 0; index < buckets_.size(); ++index) {
      if (is_cut(index)) buckets_[index].own.copy_(own_shard(index, buckets_[index].memory));
    }
    return changed;
  } catch (...) {
    for (std::size_t i = 0; i < parameters_.size(); ++i) put_anew(i, memory_of(i));
    throw;
  }
}

std::vector<std::size_t> FlatParameters::take(const std::vector<at::Tensor>& fresh,
                                              const AxisCall& call) {
  const CalledFrom scope(call);
  for (std::size_t i = 0; i < parameters_.size(); ++i) let_go(i);
  std::vector<std::int64_t> hashes;
  std::vector<std::size_t> taken;
  for (std::size_t i = 0; i < fresh.size(); ++i) {
    hashes.push_back(fresh[i].defined() ? hash_of(fresh[i]) : 0);
    if (fresh[i].defined()) taken.push_back(i);
  }
  if (const auto found = first_difference(hashes, axis_)) {
    throw Error(lockstep::str(
        call.text(), ": parameter '", names_[found->index], "' was given other values on ",
        found->replicas.size() == 1 ? "replica " : "replicas ", join(found->replicas),
        " than on replica 0: all replicas must change it alike"));
  }
  for (const std::size_t index : taken) {
    const bool is_own = is_cut(layout_.place(index).bucket);
    if (is_own || writes_first()) memory_of(index).copy_(fresh[index]);
  }
  if (!holders_.empty()) wait_for_holders();
  for (std::size_t i = 0; i < parameters_.size(); ++i) {
    if (buckets_[layout_.place(i).bucket].memory.defined()) put_anew(i, memory_of(i));
  }
  for (const std::size_t index : taken) {
    parameters_[index].unsafeGetTensorImpl()->bump_version();
    note(index);
  }
  return taken;
}

void FlatParameters::publish(const std::vector<bool>& late, collectives::AxisQueue* queue) {
  const timeline::CallKindScope recorded(timeline::SpanKind::gather);
  for (std::size_t i = 0; updates_ == ParameterUpdates::own_group && i < parameters_.size(); ++i) {
    // Its owner has written the parameter itself.
    const tree::FlatBucket& bucket = layout_.buckets()[layout_.place(i).bucket];
    if (!placed_[i].strides.empty() && bucket.group == replica_ + 1) {
      memory_of(i).copy_(parameters_[i].detach());
    }
  }
  if (updates_ == ParameterUpdates::all || is_common()) {
    wait_for_holders();
  } else {
    for (std::size_t index = 0; index < buckets_.size(); ++index) {
      const at::Tensor& memory = buckets_[index].memory;
      if (updates_ == ParameterUpdates::own_group) {
        pbroadcast_(memory, axis_, layout_.buckets()[index].group - 1);
      } else if (!is_cut(index) && (late.empty() || !late[index])) {
        all_gather_into(memory, own_shard(index, memory), axis_);
      }
    }
    for (std::size_t index = late.size(); index-- > 0;) {
      if (!late[index]) continue;
      for (const std::size_t item : layout_.buckets()[index].items) hide(item);
      const at::Tensor& memory = buckets_[index].memory;
      buckets_[index].gathering = queue->all_gather_into(memory, own_shard(index, memory));
    }
  }
  // Others have written them, where autograd does not see it; what has another order is a copy.
  for (std::size_t i = 0; i < parameters_.size(); ++i) {
    const bool is_hidden = placed_[i].hidden.defined();
    if (!placed_[i].strides.empty() && !is_hidden && has_storage(i)) {
      parameters_[i].detach().copy_(memory_of(i));
    }
    parameters_[i].unsafeGetTensorImpl()->bump_version();
    if (!is_hidden) note(i);
  }
}

void FlatParameters::set_memory(std::size_t bucket, const at::Tensor& memory) {
  buckets_[bucket].memory = memory;
  for (const std::size_t item : layout_.buckets()[bucket].items) {
    const at::Tensor& parameter = parameters_[item];
    Placed& placed = placed_[item];
    if (memory.defined()) {
      if (placed.hidden.defined()) {
        parameter.unsafeGetTensorImpl()->shallow_copy_from(placed.hidden.getIntrusivePtr());
        placed.hidden.reset();
      }
      if (has_storage(item)) put(item, memory_of(item));
    } else if (has_storage(item)) {
      placed.was_written = state_of(item) == State::written;
      hide(item);
    }
  }
}

// Frees a parameter's memory, and makes it one of the meta device.
void FlatParameters::hide(std::size_t index) {
  const at::Tensor& parameter = parameters_[index];
  const at::Tensor nothing =
      at::empty_strided(parameter.sizes(), parameter.strides(),
                        parameter.options().device(at::kMeta).requires_grad(false));
  placed_[index].hidden = parameter.detach();
  parameter.storage().unsafeGetStorageImpl()->set_data_ptr_noswap(
      c10::DataPtr(nullptr, c10::Device(c10::kCPU)));
  parameter.unsafeGetTensorImpl()->shallow_copy_from(nothing.getIntrusivePtr());
}

at::Tensor FlatParameters::own_shard(std::size_t index, const at::Tensor& bucket) const {
  const Range own = plan_.buckets[index].shard;
  return bucket.narrow(0, own.offset, own.size);
}

void FlatParameters::start_gathering(std::size_t index, collectives::AxisQueue& queue) {
  Bucket& bucket = buckets_[index];
  if (!is_cut(index) || bucket.gathered.defined()) return;
  const c10::AutoGradMode no_grad(false);
  bucket.gathered = at::empty({layout_.buckets()[index].size}, bucket.own.options());
  gathered_ += static_cast<std::int64_t>(bucket.gathered.nbytes());
  gathered_peak_ = std::max(gathered_peak_, gathered_);
  bucket.gathering = queue.all_gather_into(bucket.gathered, bucket.own);
}

void FlatParameters::gather(std::size_t index, collectives::AxisQueue& queue) {
  start_gathering(index, queue);
  Bucket& bucket = buckets_[index];
  if (!bucket.gathering) return;
  queue.wait(*bucket.gathering);
  bucket.gathering.reset();
  set_memory(index, is_cut(index) ? bucket.gathered : bucket.memory);
}

void FlatParameters::drop(std::size_t index, collectives::AxisQueue& queue) {
  Bucket& bucket = buckets_[index];
  if (!bucket.gathered.defined()) return;
  gather(index, queue);
  set_memory(index, at::Tensor());
  gathered_ -= static_cast<std::int64_t>(bucket.gathered.nbytes());
  bucket.gathered.reset();
}

at::Tensor FlatParameters::memory_for_others(std::size_t index) const {
  const Bucket& bucket = buckets_[index];
  return is_cut(index) ? bucket.gathered : at::empty_like(bucket.memory);
}

void FlatParameters::lend(std::size_t index, const at::Tensor& memory) {
  const c10::AutoGradMode no_grad(false);
  buckets_[index].home = std::exchange(buckets_[index].memory, memory);
  show(index);
}

// The bucket's parameters get its memory, which has other values than theirs.
void FlatParameters::show(std::size_t index) {
  for (const std::size_t item : layout_.buckets()[index].items) {
    parameters_[item].unsafeGetTensorImpl()->bump_version();
    put_anew(item, memory_of(item));
  }
}

void FlatParameters::take_back(std::size_t index) {
  const c10::AutoGradMode no_grad(false);
  for (const std::size_t item : layout_.buckets()[index].items) {
    if (state_of(item) != State::in_place) placed_[item].was_written = true;
  }
  buckets_[index].memory = std::exchange(buckets_[index].home, at::Tensor());
  show(index);
}

}  // namespace lockstep::training
