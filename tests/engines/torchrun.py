"""torchrun, also where only Debian's PyTorch 1.13 is: with Python 3.11 that one fails to read its own default."""

from torch.distributed.elastic.multiprocessing.api import Std
from torch.distributed.run import main

if Std.from_str("0") is None:
    Std.from_str = classmethod(lambda cls, text: cls(int(text)))
main()
