"""What answers cost: requests and tokens, and money where the price is known."""

from dataclasses import dataclass

from ffscope.errors import InputError


@dataclass(frozen=True)
class Price:
    """The price of a million tokens, of questions and of answers, in whatever currency."""

    prompt: float
    completion: float

    @classmethod
    def parse(cls, text: str) -> "Price":
        """`"0.15,0.60"`: of a million tokens in, and out."""
        try:
            prompt, completion = map(float, text.split(","))
        except ValueError:
            prompt = completion = -1.0
        if not (0 <= prompt < 1e9 and 0 <= completion < 1e9):
            raise InputError(
                f"{text!r} is no price. Write that of a million tokens in and that of a million tokens out, such as 0.15,0.60."
            )
        return cls(prompt, completion)


@dataclass(frozen=True)
class Tokens:
    """Requests, and the tokens that the endpoint counted in them."""

    requests: int = 0
    prompt: int = 0
    completion: int = 0

    def __add__(self, other: "Tokens") -> "Tokens":
        return Tokens(self.requests + other.requests, self.prompt + other.prompt, self.completion + other.completion)


@dataclass(frozen=True)
class Cost:
    """What was paid now, and what had been paid before and was kept."""

    paid: Tokens = Tokens()
    kept: Tokens = Tokens()
    price: Price | None = None

    @property
    def money(self) -> float | None:
        """What was paid now, where the price is known."""
        if self.price is None:
            return None
        return (self.paid.prompt * self.price.prompt + self.paid.completion * self.price.completion) / 1e6

    def __str__(self) -> str:
        paid = self.paid
        said = f"{paid.requests:,} requests, {paid.prompt:,} tokens in, {paid.completion:,} out"
        if self.money is not None:
            said += f", {self.money:,.4f} paid"
        return f"{said}; {self.kept.requests:,} from the cache" if self.kept.requests else said
