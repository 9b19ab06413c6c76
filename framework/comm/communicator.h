#pragma once

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <exception>
#include <memory>
#include <span>
#include <string>
#include <type_traits>
#include <vector>

#include "framework/base/bytes.h"
#include "framework/base/element_type.h"
#include "framework/base/non_copyable.h"
#include "framework/base/random.h"
#include "framework/comm/link_speed.h"

namespace lockstep::comm {

/// The copies of a symmetric buffer that a host holds: one for each replica, or one that all of
/// them read and write.
enum class Copies { each, one };

/// Memory that the replicas of a group have allocated together: see Communicator::allocate.
struct SymmetricBuffer {
  /// This replica's copy: zero at first, aligned to a page.
  Bytes own;
  /// The replicas that hold each copy, ascending; copies are in the order of their first replicas.
  /// All replicas have the same list. It is empty with Copies::each.
  std::vector<std::vector<int>> holders{};
  /// Keeps the memory; shared memory lives as long as any replica keeps it.
  std::shared_ptr<const void> memory{};

  /// True when `own` of all replicas is the same memory.
  [[nodiscard]] bool is_common() const noexcept { return holders.size() == 1; }
};

/// An address in memory that the replicas of a host share.
struct SharedAddress {
  std::uint64_t extent = 0;  ///< the allocation; 0: none
  std::uint64_t at = 0;      ///< bytes from its start

  bool operator==(const SharedAddress&) const = default;
};

/// Throws CommError with the numbers if `bytes` are more than the `available` ones.
void check_memory_left(std::size_t bytes, std::size_t available);

/// Returns a zeroed buffer for this replica alone. Throws CommError if less memory is available.
[[nodiscard]] SymmetricBuffer private_buffer(std::size_t bytes);

/// One call of a Communicator's method, with its arguments. Buffers belong to the caller.
struct Verb {
  enum class Kind {
    all_reduce,
    reduce_scatter,
    all_gather,
    all_to_all,
    broadcast,
    barrier,
    allocate
  };
  Kind kind;
  ConstBytes input = {};
  Bytes output = {};  ///< broadcast: the data
  ElementType type = ElementType::uint8;
  ReduceOp op = ReduceOp::sum;
  std::span<const std::size_t> send_sizes = {};
  std::span<const std::size_t> recv_sizes = {};
  int root = 0;           ///< broadcast
  std::size_t bytes = 0;  ///< allocate: the size of the buffer
  Copies copies = Copies::each;
  SymmetricBuffer* buffer = nullptr;  ///< allocate: the result

  /// Throws ValueError, naming the rule, unless replica `rank` of a group of `size` may call it.
  void check(int rank, int size) const;
};

/// Does a verb of a group of one.
void run_alone(const Verb& verb);

/// Counts of what one replica has sent, payload only. Any thread may read them at any time.
struct Ledger {
  std::atomic<std::uint64_t> bytes_sent{0};
  /// The times that the replica sent to all its peers and waited for all their messages.
  std::atomic<std::uint64_t> rounds{0};
  /// The replica's connections to others, if the transport makes them when they are needed.
  std::atomic<std::uint64_t> connections{0};
};

/// Moves bytes between the members of a group, which are called replicas here; for groups/ they are
/// workers. All replicas of a group call the same verbs with the same sizes in the same order. A
/// verb returns once this replica's result is there. Buffers are the caller's, aligned to their
/// element type, and may be used again when the verb returns. One thread at a time may call a
/// Communicator, except for interrupt(), abort() and ledger(). A group of one sends nothing, but
/// checks its arguments all the same. Empty buffers are fine everywhere.
///
/// Sizes that break a verb's rule are ValueErrors and leave the group usable. Failures of the job
/// are CollectiveMismatch, ReplicaLost, Timeout and Aborted. After these the group can't be used.
class Communicator : private NonCopyable {
 public:
  /// Stands for no replica in permute().
  static constexpr int kNobody = -1;

  Communicator(int rank, int size);
  virtual ~Communicator() = default;

  /// Returns this replica's place in the group, in [0, size()).
  [[nodiscard]] int rank() const noexcept { return rank_; }
  [[nodiscard]] int size() const noexcept { return size_; }

  /// output = the reduction of all inputs, in reduce()'s canonical order, the same bits on every
  /// replica. `input` and `output` have the same size and are the same buffer or do not overlap.
  void all_reduce(ConstBytes input, Bytes output, ElementType type, ReduceOp op) {
    call({Verb::Kind::all_reduce, input, output, type, op});
  }

  /// output = this replica's slice of all_reduce's result. `input` is size() slices of
  /// output.size() bytes each; replica r gets slice r. Input and output may overlap only if
  /// `output` is exactly the own slice of `input`.
  void reduce_scatter(ConstBytes input, Bytes output, ElementType type, ReduceOp op) {
    call({Verb::Kind::reduce_scatter, input, output, type, op});
  }

  /// output = the inputs of all replicas in their order, input.size() bytes each. Input and output
  /// may overlap only if `input` is exactly the own slice of `output`.
  void all_gather(ConstBytes input, Bytes output) {
    call({.kind = Verb::Kind::all_gather, .input = input, .output = output});
  }
  /// Returns the values of all replicas, in their order.
  template <typename T>
  requires std::is_trivially_copyable_v<T>
  [[nodiscard]] std::vector<T> all_gather(const T& own) {
    std::vector<T> all(static_cast<std::size_t>(size_), own);
    all_gather(std::as_bytes(std::span(&own, 1)), std::as_writable_bytes(std::span(all)));
    return all;
  }

  /// Sends send_sizes[r] bytes of `input` to each replica r, and writes the recv_sizes[r] bytes
  /// from replica r to `output`. Both buffers are in the order of r, end to end, and do not
  /// overlap. send_sizes[r] here and recv_sizes[rank()] on replica r must be equal.
  void all_to_all(ConstBytes input, std::span<const std::size_t> send_sizes, Bytes output,
                  std::span<const std::size_t> recv_sizes);

  /// Sends `input` to `destination` and receives `output` from `source`. With kNobody as either,
  /// its buffer is not used. A source and its destination must name each other, with the same size.
  /// The buffers must not overlap.
  void permute(ConstBytes input, int destination, Bytes output, int source);

  /// data = replica `root`'s data.
  void broadcast(Bytes data, int root) {
    call({.kind = Verb::Kind::broadcast, .output = data, .root = root});
  }

  /// Returns once every replica has called it.
  void barrier() { call({.kind = Verb::Kind::barrier}); }

  /// Allocates `bytes` of memory for each replica. All replicas call this together with the same
  /// arguments. Where replicas share memory (one host, not over Gloo) the memory is symmetric:
  /// verbs on such buffers, or on parts of them, copy nothing. Each replica reads the others'
  /// buffers in place. For that the inputs of all replicas must be in buffers of one call; for
  /// all_reduce the outputs, too. Elsewhere the memory is ordinary.
  ///
  /// With Copies::one the replicas of a host share one copy; over Gloo, those of a process do: see
  /// `holders`. In an all_gather into the only copy of all replicas, each writes its own part,
  /// unless that is there already, and waits for the others. A copy that some replicas have, but
  /// not all, must not be an all_reduce's output. Nobody may read what another is writing.
  ///
  /// Throws CommError on all replicas that share memory if their host has not enough. After a
  /// failure of the job in a verb, others may still write to the verb's output.
  [[nodiscard]] SymmetricBuffer allocate(std::size_t bytes, Copies copies = Copies::each) {
    SymmetricBuffer buffer;
    call({.kind = Verb::Kind::allocate, .bytes = bytes, .copies = copies, .buffer = &buffer});
    return buffer;
  }

  /// Does `verb`. The methods above all call this.
  void call(const Verb& verb) {
    verb.check(rank_, size_);
    run(verb);
  }
  /// Does a `verb` whose arguments were checked for this replica.
  virtual void run(const Verb& verb) = 0;

  /// Returns the group of `members` (ranks in this group, each at most once, this replica among
  /// them) in the order given. Every member asks for the same list; no message is sent. Both groups
  /// share connections and ledger. abort() on either ends both; on a group of threads (groups/) it
  /// ends that group alone. Groups of the same members on different channels are different groups;
  /// different groups may be used by different threads.
  [[nodiscard]] std::shared_ptr<Communicator> subgroup(std::span<const int> members,
                                                       std::uint64_t channel = 0);

  /// Begins the verbs of the call with this `fingerprint`. The n-th verb since mark() meets the
  /// n-th with the same mark. Different calls never mix data: a verb of another call waits or, in
  /// shared memory, throws CollectiveMismatch.
  void mark(std::uint64_t fingerprint) noexcept {
    mark_ = fingerprint;
    marked_verbs_ = 0;
  }

  /// Ends this replica's verb under way on this group, and every later one, with `error`. Other
  /// groups that share its connections go on. Any thread may call this.
  virtual void interrupt(const std::exception_ptr& error) noexcept = 0;

  /// Ends this replica's verb and all later ones with Aborted(`reason`). Any thread may call this.
  virtual void abort(const std::string& reason) noexcept = 0;

  /// True when bytes travel over a network, which takes time but leaves the CPU free. In shared
  /// memory a verb is work for the CPU.
  [[nodiscard]] virtual bool is_network() const noexcept = 0;

  /// True when some of the group's replicas share memory.
  [[nodiscard]] virtual bool shares_memory() const noexcept = 0;

  /// Returns the speed of messages on a network: kLoopback, or the speed that was set.
  [[nodiscard]] virtual LinkSpeed link_speed() const { return kLoopback; }
  /// Sets the speed for all groups that share this group's connections. All replicas set the same
  /// speed before a verb.
  virtual void set_link_speed(const LinkSpeed& /*speed*/) {}
  /// Returns the seconds that an all-reduce takes on a network of that speed (schedule_choice.h),
  /// the same on all replicas; 0 in shared memory.
  [[nodiscard]] virtual double all_reduce_seconds(std::size_t /*bytes*/) const { return 0; }

  /// Returns the address of `memory`; {} if it is not shared. Equal addresses are the same memory.
  [[nodiscard]] virtual SharedAddress shared_address(ConstBytes /*memory*/) const { return {}; }

  /// Returns this replica's counts, over all groups with its connections. Any thread may call this.
  [[nodiscard]] virtual const Ledger& ledger() const noexcept = 0;

 protected:
  [[nodiscard]] std::uint64_t current_mark() const noexcept { return mark_; }
  /// Returns the mark of the verb that begins now. Each verb since mark() has another one.
  [[nodiscard]] std::uint64_t next_mark() noexcept {
    return Key(mark_).fold(marked_verbs_++).bits();
  }

 private:
  [[nodiscard]] virtual std::shared_ptr<Communicator> do_subgroup(std::span<const int> members,
                                                                  int own_place,
                                                                  std::uint64_t channel) = 0;

  int rank_;
  int size_;
  std::uint64_t mark_ = 0;
  std::uint64_t marked_verbs_ = 0;
};

}  // namespace lockstep::comm
