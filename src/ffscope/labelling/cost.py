"""The cost of answers: requests, tokens and, if the price is known, money."""

from dataclasses import dataclass

from ffscope.errors import InputError


@dataclass(frozen=True)
class Price:
    """The price of a million prompt tokens and a million completion tokens, in any currency."""

    prompt: float
    completion: float

    @classmethod
    def parse(cls, text: str) -> "Price":
        """Parse `"0.15,0.60"`: the price of a million tokens in, and out."""
        try:
            prompt, completion = map(float, text.split(","))
        except ValueError:
            prompt = completion = -1.0
        if not (0 <= prompt < 1e9 and 0 <= completion < 1e9):
            raise InputError(
                f"{text!r} is not a price. Give the price of a million tokens in and of a million tokens out, such as 0.15,0.60."
            )
        return cls(prompt, completion)


@dataclass(frozen=True)
class Tokens:
    """Numbers of requests, and of their tokens as counted by the endpoint."""

    requests: int = 0
    prompt: int = 0
    completion: int = 0

    def __add__(self, other: "Tokens") -> "Tokens":
        return Tokens(self.requests + other.requests, self.prompt + other.prompt, self.completion + other.completion)


@dataclass(frozen=True)
class Cost:
    """The cost of this run, and that of the answers that were already cached."""

    paid: Tokens = Tokens()
    cached: Tokens = Tokens()
    price: Price | None = None

    @property
    def money(self) -> float | None:
        """The money paid in this run; None if the price is unknown."""
        if self.price is None:
            return None
        return (self.paid.prompt * self.price.prompt + self.paid.completion * self.price.completion) / 1e6

    def __str__(self) -> str:
        paid = self.paid
        text = f"{paid.requests:,} requests, {paid.prompt:,} tokens in, {paid.completion:,} out"
        if self.money is not None:
            text += f", {self.money:,.4f} paid"
        return f"{text}; {self.cached.requests:,} from the cache" if self.cached.requests else text
