"""torch.func.vmap over lanes, in one process with one math thread: see link.main()."""

import torch
from torch.func import vmap

import link


class Lanes:
    def prepare(self, _, lanes):
        """As ../systems/maps.cpp; there are no collectives of lanes."""
        matrix = 0.1 * torch.rand(64, 64)
        self.vectors = torch.rand(lanes, 64)
        self.mapped = vmap(lambda vector: torch.tanh(matrix @ vector))
        self.call()
        torch.testing.assert_close(self.output, torch.tanh(self.vectors @ matrix.T))
        return ""

    def call(self):
        self.output = self.mapped(self.vectors)


if __name__ == "__main__":
    link.torch_main(lambda name, rank, replicas: Lanes())
