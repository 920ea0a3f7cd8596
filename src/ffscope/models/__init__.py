"""Read any transformer as key–value memories. Only this package knows transformers' module names."""

import os

# With it, the last digits of a matrix product on a CPU hardly ever depend on the number of threads, so that results do not depend
# on the number of a worker's cores. MKL reads it before its first product. It costs about 1 %.
os.environ.setdefault("MKL_CBWR", "AUTO,STRICT")
