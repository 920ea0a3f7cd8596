"""Shapes in signatures: `Float[Tensor, "batch pos memory"]`.

The axes are `layer batch pos memory hidden vocab`; `*at` stands for any leading axes, and `_` before a name for a size that may
differ between layers. The tests check every annotation; without jaxtyping the code runs unchecked.
"""

from typing import TYPE_CHECKING, Any

import numpy as np

if TYPE_CHECKING:
    from jaxtyping import Bool, Float, Int
else:
    try:
        from jaxtyping import Bool, Float, Int
    except ModuleNotFoundError:

        class _Unchecked:
            def __class_getitem__(cls, item: tuple[Any, str]) -> Any:
                return item[0]

        Bool = Float = Int = _Unchecked

Array = np.ndarray
"""A numpy array of any shape."""

__all__ = ["Array", "Bool", "Float", "Int"]
