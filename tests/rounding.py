"""Makes numpy round alike on all machines, if it is imported before numpy.

OpenBLAS chooses its kernels by the processor, and they add in different orders: the last digits
of a bound differ from one machine to the next. So do those of `exp` and `log` where numpy uses
AVX-512. Golden logs hold all digits.
"""

from __future__ import annotations

import os
from pathlib import Path

CPU = Path("/proc/cpuinfo")

if CPU.exists() and " avx2 " in CPU.read_text():
    os.environ.setdefault("OPENBLAS_CORETYPE", "Haswell")
    os.environ.setdefault("NPY_DISABLE_CPU_FEATURES", "X86_V4 AVX512_ICL AVX512_SPR")
