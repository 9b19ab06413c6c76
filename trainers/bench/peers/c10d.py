"""PyTorch's c10d over Gloo, one process a replica: see link.main()."""

import torch
import torch.distributed as dist

import link


class Collectives:
    def __init__(self, rank, replicas):
        self.rank = rank
        self.replicas = replicas

    def prepare(self, operation, size):
        floats = size // 4
        own = floats // self.replicas
        self.input = self.output = None  # the buffers of the operation before
        if operation == "all_reduce":
            self.input = self.output = torch.full((floats,), self.rank + 1.0)
        elif operation == "reduce_scatter":
            self.input, self.output = torch.full((floats,), self.rank + 1.0), torch.empty(own)
        else:
            self.input, self.output = torch.full((own,), self.rank + 1.0), torch.empty(floats)
        note = self._choose(operation)
        self._check(operation)
        self.input.zero_()  # what is summed in place again and again must stay finite
        return note

    def _choose(self, operation):
        """Sets self.call, to the first of the ways that this version has over Gloo, and calls it."""
        ways = {"all_reduce": [self._all_reduce],
                "reduce_scatter": [self._reduce_scatter_tensor, self._all_reduce_and_cut],
                "all_gather": [self._all_gather_into_tensor, self._all_gather_into_views]}[operation]
        for number, way in enumerate(ways):
            try:
                way()
            except (RuntimeError, AttributeError):
                if number == len(ways) - 1:
                    raise
                continue
            self.call = way
            return way.__doc__ if number > 0 else ""

    def _check(self, operation):
        each = torch.arange(1.0, self.replicas + 1)
        expected = each.unsqueeze(1) if operation == "all_gather" else each.sum()
        found = self.output.view(self.replicas, -1) if operation == "all_gather" else self.output
        if not found.eq(expected).all():
            raise RuntimeError(f"{operation}: the result is wrong")

    def _all_reduce(self):
        dist.all_reduce(self.input)

    def _reduce_scatter_tensor(self):
        dist.reduce_scatter_tensor(self.output, self.input)

    def _all_reduce_and_cut(self):
        """it has no reduce-scatter over Gloo; its all_reduce in place and a view of the own part are measured"""
        dist.all_reduce(self.input)
        self.output = self.input.view(self.replicas, -1)[self.rank]

    def _all_gather_into_tensor(self):
        dist.all_gather_into_tensor(self.output, self.input)

    def _all_gather_into_views(self):
        """it has no all_gather_into_tensor over Gloo; its all_gather into views of one tensor is measured"""
        dist.all_gather(list(self.output.view(self.replicas, -1)), self.input)

    def barrier(self):
        dist.barrier()


if __name__ == "__main__":
    link.torch_main(lambda name, rank, replicas: Collectives(rank, replicas))
