"""torchrun, also where only Debian's PyTorch is: its 2.6 asks for a library that Debian has built it without."""

import torch.distributed


class TCPStore(torch.distributed.TCPStore):
    def __init__(self, *arguments, **options):
        super().__init__(*arguments, **{**options, "use_libuv": False})


if "use_libuv" in torch.distributed.TCPStore.__init__.__doc__:
    torch.distributed.TCPStore = TCPStore

from torch.distributed.run import main  # noqa: E402

main()
