"""The exceptions. Every message says what was expected, what was found and what to do.

FfscopeError
├── SourceError       a model that cannot be found or read
├── LayoutError       a model whose feed-forward layers cannot be read as memories
├── ProofError        a model that was read, but fails an identity
├── LensError         a lens that does not exist or that this model does not support
├── GradientError     effects that are not defined: of a model without a gradient, loss or baseline
├── MemoryNameError   a name that is malformed or not in the model
├── InputError        an option, text or token ids that are not accepted
├── CorpusError       a corpus that cannot be found or read
├── StudyError        a study folder that cannot be read, written or resumed
├── LabellerError     a labelling language model that fails
├── EngineError       a cluster or its storage that cannot be used, or work that fails on it
└── CoefficientError  coefficients that are not finite
"""


def first_line(error: BaseException) -> str:
    """The first line of an error's message, without the full stop; the class name if it has no message."""
    text = str(error).strip()
    return text.splitlines()[0].rstrip(".") if text else type(error).__name__


class FfscopeError(Exception):
    """Base class. The command line prints the message without a traceback."""

    exit_code = 2


class SourceError(FfscopeError):
    """A model that cannot be found or read."""


class LayoutError(FfscopeError):
    """A model whose feed-forward layers cannot be read as memories."""


class ProofError(FfscopeError):
    """A model whose layers, as read, do not reproduce its own computation."""

    exit_code = 1


class LensError(FfscopeError):
    """A lens that does not exist or that this model does not support."""


class GradientError(FfscopeError):
    """Effects that are not defined: the model cannot be differentiated, or there is no loss or no baseline."""


class MemoryNameError(FfscopeError):
    """The name of a memory or layer that is malformed or not in the model."""


class InputError(FfscopeError):
    """An option, text or token ids that are not accepted."""


class CorpusError(FfscopeError):
    """A corpus that cannot be found or read."""


class StudyError(FfscopeError):
    """A study folder that cannot be read, written or resumed."""


class LabellerError(FfscopeError):
    """A labelling language model that cannot be reached or gives an invalid answer."""


class EngineError(FfscopeError):
    """A cluster or its storage that cannot be used, or work that fails on it again and again."""


class CoefficientError(FfscopeError):
    """Coefficients that are not finite, so they cannot be ranked."""

    exit_code = 1
