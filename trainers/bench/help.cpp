#include "trainers/bench/flags.h"

namespace lockstep::bench {

std::string help_on_measuring() {
  return R"(Systems. Buffers are float32; "threads" behind a name says that its replicas are threads.
  symmetric  Lockstep: psum_, psum_scatter_into and all_gather_into on symmetric_zeros(), memory
             that the replicas share; each replica's own part is a slice of the whole buffer
  psum       Lockstep: psum, psum_scatter and all_gather on ordinary tensors, all checks on
  pmap       the same inside a pmap, whose replicas are threads
  gloo       the same as psum, with Backend::gloo: TCP on loopback
  c10d       PyTorch's torch.distributed over Gloo, on loopback, a process a replica
  openmpi    Open MPI, a process a replica; if MPI was there when bench was built
  jax        JAX under pmap, with as many CPU host devices as replicas in one process
and of bench vdot, on float32 arrays that lie in memory (JAX: on its devices) cut into 8 parts:
  pmap       Lockstep: at::dot of parts in each of 8 replicas, then psum
  serial     LibTorch's at::dot in one thread
  libtorch   LibTorch's at::dot on all cores
  jax        jnp.vdot under pmap over 8 CPU host devices, then psum
pmap's result must be that of float64 to 1e-5; how far each is from that is said below the table.
and of bench training, all with Adam, one math thread a replica, on batches from memory:
  lockstep   Lockstep at each stage of ZeRO ("stage 0"), also on augmented images, by a PictureSet
             as in `train` ("stage 0 augmented"); and `train`, for launches
  plain      PyTorch's plain loop, each replica for itself
  ddp        PyTorch's DistributedDataParallel over Gloo on loopback, gradient_as_bucket_view and
             static_graph on; from 2 replicas on
  zero       the same with ZeroRedundancyOptimizer, parameters_as_bucket_view on: stage 1
  fsdp       PyTorch's FSDP2, fully_shard() over a mesh of CPUs, of each block of a model and of the
             rest: stage 3. PyTorch 1.13 has none
  torchrun   torchrun with DistributedDataParallel; for launches
and of bench checkpoint, all with the same tensors: float32 parameters and Adam's two moments
  lockstep   CheckpointSaver and load_checkpoint(), of ZeRO's stage 2
  dcp        PyTorch's torch.distributed.checkpoint: save() and load() of DTensors, each replica
             with its shard of every tensor
  dcp_async  the same with async_save(), which keeps its copy where this version can
  torch_save torch.save() of each replica's shards to a file of its own, fsync, and torch.load()
PyTorch's cnn and resnet are channels_last (with fsdp, which refuses that of parameters, from the
first convolution's result on), its cnn pools before ReLU, as Lockstep's does, and of its Adams (one
by one, foreach, fused) the one is taken that is the fastest on this machine; a line says which.
Lockstep's resnet normalizes over all replicas. PyTorch's SyncBatchNorm needs a GPU: its resnet
normalizes each replica's batch, which needs no message.

A system that this machine lacks is left out, with a line that says why; one that --systems names
must be there.

Sizes. A size S is that of the whole buffer: all_reduce takes S and gives S on each of N replicas,
reduce_scatter takes S and gives S/N, all_gather takes S/N and gives S. In reduce_scatter and
all_gather, S is rounded up to a whole number of floats for each replica.

How is measured. All systems run at the same time, each as N replicas. These sleep until it is their
turn. For each case (operation, replicas, size) each system makes its buffers, and its result is
checked. Then the systems take turns again and again. In its turn a system runs one batch: a
barrier, then calls one after another for about 3 ms, at least one. A sample is the time from the
first replica's begin to the last one's end, divided by the calls. Tables show the median, and by
how many percent the lower and the upper quartile differ from it.

Bus bandwidth is as NCCL's tests define it, so that sizes, operations and numbers of replicas can be
compared: for a call that takes t, all_reduce 2 (N-1)/N S/t, the others (N-1)/N S/t.

The limit is this machine's memory: min(N, cores) threads copy buffers that together are larger than
any cache. Bytes read and written count together. Normal stores, non-temporal stores and memcpy are
tried; the fastest counts. From 1 MiB on, the number in parentheses is the part of the limit that a
system uses for what must be read and written at the least. That is, for all replicas together:
all_reduce N S read and N S written, reduce_scatter N S and S, all_gather (N-1) S and (N-1) S. What
stays in caches can be more than 100%.

bench training: a sample is a batch of steps of about 60 ms, divided by the steps. Each model on
each number of replicas has processes of its own.
- Parts of a step are medians of the replicas' own clocks. Forward, backward and update are measured
  alone: in as many processes, at the same time, that do nothing else (PyTorch: in its plain loop).
  Communication is what a step takes longer than these and the data, and so exposed. Noise can make
  it less than nothing.
- "times as fast as" is the median, over the turns, of the peer's time over the system's. "exposed,
  of that of" is the system's communication in percent of the peer's, where that is not nothing.
- The floor is forward and backward alone, and Adam's 28 bytes a parameter at the memory's speed as
  above. One of the replicas updates each parameter, once.
- Efficiency is the time of one replica (PyTorch: of the plain loop) that takes its turns among the
  others, over the time here. It is given where each replica has a core.
- Memory is the largest replica's peak (VmHWM) and what all have in the end, shared pages counted
  once (Pss).
- Launches: 4 processes train one step of the pmean example. Measured is the time from the start of
  the program to the line that says that the step is done, 5 times in turn unless --repetitions says
  otherwise.

bench checkpoint: systems take turns, 5 times unless --repetitions says otherwise. In its turn a
system saves, loads what it has saved, and removes it. Of the replicas the slowest counts.
- A save ends when all is on the disk (fsync). Its pause ends when the call returns and training may
  go on; copies that a system keeps are there from an earlier save.
- What is loaded was just written: it comes from the system's cache, on a disk too. Lockstep
  compares all checksums. PyTorch has none that loading compares.
- Limits, in turn with the others, for the same bytes in as many processes: write() in parts of
  8 MiB, which the disk gets at once, and fsync; read(); a copy in memory; the checksum (XXH3).
  "of limit": the slower of writing and the checksum, over the save.
- Memory is the peak of the replica that needs the most: for a save beyond what it had before its
  first save, for a load beyond what it had before that load.
- Then twice as many replicas load Lockstep's last checkpoint at stage 3 and save it, as many load
  that at stage 0 and save it, and one loads that. Listed is what a replica holds, as measured and
  as predicted_memory() says, with its part of pages that replicas share, and what loading takes on
  top.

bench parts, each in turn with what it is compared with; "x" is a median over that of the first row:
- table: from the start of the program to the end of its first step, 5 times unless --repetitions
  says otherwise. `train` fits a linear model to a table in CSV of 500 rows, numbers of about 8
  bytes; pandas, or NumPy's loadtxt where no interpreter has that, reads the same table, and NumPy
  makes the step. The same with a table of 4 columns tells what programs need for their own start.
- replicated: shard_map's check that a result of 64 MiB is alike on 2 replicas, each with memory of
  its own: what a call takes longer than one without the check. Beside it the time in which the
  memory's limit, as above, lets the 2 be read once.

Several hosts, for collectives and training: --hosts makes namespaces of this machine, on one
switch, which only root can do; they are gone in the end. Replicas are processes, by default 1 and 2
on each host, in training 2. The hosts share the machine's cores.
- Measured are Lockstep's symmetric, psum and stages, c10d, plain, ddp, zero, and in collectives
  tcp: sockets between the hosts, on which each host sends the bytes that it must send in such an
  operation, to the next host, in both directions at once. "times as fast" as tcp is the part of the
  network's speed that is reached.
- Bus bandwidth is of hosts, with N their number. "sent" has all headers, of one host.
- Of a step, "communication" is exposed: training waits for it. "on cable" is what the cable takes
  for the bytes that a host sends, in ms; "hidden" the part of it that is beside the other parts.
- The bound of a step is the latest of all gradients: each is sent when it is ready, as "alone"
  measures that, and after it those that are ready later, 2 (H-1)/H of their bytes at the cable's
  rate. It has no headers, and no update. "x bound" is a step over it.

Exit status: 0 done; 2 arguments; 3 a system failed; 1 any other error; 130 Ctrl-C; 129 SIGHUP;
143 SIGTERM.

Examples:
  bench collectives --json collectives.json --plot collectives.svg
  bench vdot --python venv/bin/python
  bench training --python /usr/bin/python3,venv/bin/python --json training.json --plot training.svg
  bench checkpoint --python venv/bin/python --folders /tmp,/dev/shm --json checkpoint.json
  bench parts --python venv/bin/python --json parts.json
  bench training --hosts 2 --rate-mbit 100 --delay-ms 5 --python venv/bin/python
  bench collectives --operations all_reduce --sizes 1KiB,1MiB,64MiB --replicas 2 \
      --python /usr/bin/python3,venv/bin/python
)";
}

}  // namespace lockstep::bench
