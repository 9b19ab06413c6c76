"""One step of synchronized training under torchrun, which is timed from its launch: the pmean example of
configs/pmean_linear.yaml with DistributedDataParallel. Prints "step 1" when the first step is done.
"""

import torch
import torch.distributed as dist


def main():
    torch.set_num_threads(1)
    dist.init_process_group("gloo")
    rank, replicas = dist.get_rank(), dist.get_world_size()
    model = torch.nn.Linear(1, 1)
    with torch.no_grad():
        model.weight.fill_(1)
        model.bias.zero_()
    inputs = torch.arange(4.0 * rank, 4.0 * rank + 4).unsqueeze(1)
    averaged = torch.nn.parallel.DistributedDataParallel(model)
    optimizer = torch.optim.SGD(averaged.parameters(), lr=0.01)
    torch.nn.functional.mse_loss(averaged(inputs), 2 * inputs + 0.5).backward()
    optimizer.step()
    if rank == 0:
        print(f"step 1 of {replicas} replicas: w = {model.weight.item():.6g}, b = {model.bias.item():.6g}", flush=True)
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
