"""torchrun, also where only Debian's PyTorch is: with Python 3.11 its 1.13 fails to read its own default, and its 2.6 asks for
a library that Debian has built it without."""

import torch.distributed


class TCPStore(torch.distributed.TCPStore):
    def __init__(self, *arguments, **options):
        super().__init__(*arguments, **{**options, "use_libuv": False})


if "use_libuv" in torch.distributed.TCPStore.__init__.__doc__:
    torch.distributed.TCPStore = TCPStore

from torch.distributed.elastic.multiprocessing.api import Std  # noqa: E402
from torch.distributed.run import main  # noqa: E402

if getattr(Std, "from_str", int)("0") is None:
    Std.from_str = classmethod(lambda cls, text: cls(int(text)))
main()
