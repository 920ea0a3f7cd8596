"""The error tree. Every message says what was expected, what was found and what to do.

FfscopeError
├── SourceError       a model that cannot be found or read
├── LayoutError       a model whose feed-forward layers cannot be read as memories
├── ProofError        a model that was read, but an identity does not hold
├── LensError         a reading over the vocabulary that this model does not have
├── MemoryNameError   a memory or layer that is misspelt or not in the model
├── InputError        text or token ids that the model does not take
├── CorpusError       a corpus that cannot be found or read
├── StudyError        a study folder that cannot be read, written or gone on with
├── LabellerError     a language model, asked for labels, that does not answer
└── CoefficientError  coefficients that are not numbers
"""


def first_line(error: BaseException) -> str:
    """The first line of what an error says, without its full stop; the name of its class where it says nothing."""
    text = str(error).strip()
    return text.splitlines()[0].rstrip(".") if text else type(error).__name__


class FfscopeError(Exception):
    """What the command line prints as one sentence, without a traceback."""

    exit_code = 2


class SourceError(FfscopeError):
    """A model that cannot be found or read."""


class LayoutError(FfscopeError):
    """A model whose feed-forward layers cannot be read as memories."""


class ProofError(FfscopeError):
    """A model that was read, but whose decomposition is not exact."""

    exit_code = 1


class LensError(FfscopeError):
    """A reading over the vocabulary that this model does not have."""


class MemoryNameError(FfscopeError):
    """A memory or layer that is misspelt or not in the model."""


class InputError(FfscopeError):
    """Text or token ids that the model does not take."""


class CorpusError(FfscopeError):
    """A corpus that cannot be found or read."""


class StudyError(FfscopeError):
    """A study folder that cannot be read, written or gone on with."""


class LabellerError(FfscopeError):
    """A language model, asked for labels, that cannot be reached or does not answer as it should."""


class CoefficientError(FfscopeError):
    """Coefficients that are not numbers, so that nothing can be ranked by them."""

    exit_code = 1
