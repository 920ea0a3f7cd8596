"""A language model behind an OpenAI-compatible address: vLLM, llama.cpp, Ollama, or a hosted one."""

import json
import logging
from collections.abc import Callable
from threading import Event
from typing import TYPE_CHECKING, Any

from ffscope.errors import LabellerError
from ffscope.labelling.address import KEYS, Address
from ffscope.queries.labeller_answers import Answer
from ffscope.tokens import visible

if TYPE_CHECKING:
    from openai import OpenAI

log = logging.getLogger(__name__)
Question = dict[str, Any]  # a request's body
Call = Callable[["OpenAI"], Any]  # makes a request with the SDK and returns the raw response
_INSTALL = "A labeller needs the openai package, which is not installed: pip install 'ffscope[label]'"
_RESUMES = "The answers so far are stored; run the same command to resume."
# Parameters that some servers do not accept; a refused request is sent again without them.
_OPTIONAL = ("response_format", "seed", "temperature", "max_tokens", "max_completion_tokens")


class RefusedError(LabellerError):
    """A question that the endpoint refuses, for instance because it is too long; others may succeed."""

    def __init__(self, message: str, *, blames: str = "") -> None:
        super().__init__(message)
        self.blames = blames  # the server's message, which may name parameters of the question


class MissingError(LabellerError):
    """The server answered 404."""


class StoppedError(LabellerError):
    """A question that was not sent because the labelling was stopped."""


class Endpoint:
    """A language model behind HTTP. Any number of threads may ask it at once, until `stopped` is set."""

    def __init__(
        self,
        url: str,
        *,
        model: str | None = None,
        timeout: float = 300.0,
        retries: int = 5,
        max_tokens: int = 2048,
    ) -> None:
        self.address = Address.parse(url)
        self.timeout, self.max_tokens = timeout, max_tokens
        self.stopped = Event()
        self._refused: frozenset[str] = frozenset()
        try:
            from ffscope.labelling.client import connect
        except ModuleNotFoundError as error:
            raise LabellerError(_INSTALL) from error
        self._client = connect(self.address, timeout=timeout, retries=retries, stopped=self.stopped)
        try:
            self.model = model or self._only_model()
        except BaseException:
            self.close()
            raise

    def __enter__(self) -> "Endpoint":
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def close(self) -> None:
        """Close the connections."""
        self._client.close()

    def question(self, messages: list[dict[str, str]], *, seed: int) -> Question:
        """The body of a request with all optional parameters; equal for equal messages."""
        return {
            "model": self.model,
            "messages": messages,
            "temperature": 0,
            "seed": seed,
            "max_tokens": self.max_tokens,
            "response_format": {"type": "json_object"},
        }

    def ask(self, question: Question) -> Answer:
        """The model's answer; parameters that the server refuses are left out."""
        refused: frozenset[str] = frozenset()
        while True:
            sent = self.sent(question, refused)
            try:
                answer = self.answer(self.get(self._chat(sent)))
            except RefusedError as error:
                blamed = blamed_parameters(error, sent)
                if not blamed:
                    raise
                refused |= blamed
            else:
                self.learn(refused)
                return answer

    def _chat(self, sent: Question) -> Call:
        return lambda client: client.chat.completions.with_raw_response.create(**sent)

    def sent(self, question: Question, refused: frozenset[str]) -> Question:
        """A question without the parameters that the server refused, for this question or for all."""
        refused |= self._refused
        sent = {name: value for name, value in question.items() if name not in refused}
        if "max_tokens" in refused and "max_completion_tokens" not in refused:
            sent["max_completion_tokens"] = question["max_tokens"]  # the name in newer OpenAI models
        return sent

    def learn(self, refused: frozenset[str]) -> None:
        """Remember refused parameters, once the server has answered without them: the cause may have been another."""
        if not refused <= self._refused:
            log.info("%s does not accept %s: it is left out.", self.address.shown, ", ".join(sorted(refused)))
            self._refused |= refused

    def _only_model(self) -> str:
        try:
            names = [
                str(model["id"]) for model in self.get(lambda client: client.models.with_raw_response.list())["data"]
            ]
        except (LookupError, TypeError):
            raise LabellerError(
                f"{self.address.shown}/models lists no models. Name one with --labeller-model."
            ) from None
        if len(names) != 1:
            listed = ", ".join(visible(name) for name in sorted(names)[:20]) or "none"
            raise LabellerError(
                f"{self.address.shown} has {len(names)} models: {listed}. Name one with --labeller-model."
            )
        return names[0]

    def get(self, call: Call, **options: Any) -> Any:
        """The JSON that an SDK call returns."""
        text = self.text(call, **options)
        try:
            return json.loads(text)
        except (ValueError, RecursionError):
            raise self.unexpected_response() from None

    def text(self, call: Call, *, missing: str = "", **options: Any) -> str:
        """The text that an SDK call returns, without secrets. Failures become a `LabellerError`; `missing` explains a 404."""
        import openai

        from ffscope.labelling.client import UnreachableError

        try:
            response = call(self._client.with_options(**options))
            return self.address.hide(response.text)
        except openai.APIStatusError as error:
            body = self.address.hide(error.response.text)
            again = ", also after retries" if error.request.extensions.get("tried", 1) > 1 else ""
            if (wait := error.response.headers.get("retry-after")) and error.status_code not in (400, 413, 422):
                again += f", and asks to wait {visible(wait, 20)} s"
            raise self.refusal(error.status_code, body, missing=missing, again=again) from None
        except UnreachableError as error:
            raise LabellerError(f"{error} {_RESUMES}") from None
        except openai.APITimeoutError:
            raise LabellerError(
                f"{self.address.shown} gave no answer in {self.timeout:g} s (--labeller-timeout allows more). {_RESUMES}"
            ) from None
        except openai.APIConnectionError:
            raise LabellerError(
                f"{self.address.shown} dropped the connection, also after retries. {_RESUMES}"
            ) from None

    def refusal(self, status: int, body: str, *, missing: str = "", again: str = "") -> LabellerError:
        """The error for a failed HTTP status, with what to do about it."""
        shown, message = self.address.shown, message_in(body)
        if status in (400, 413, 422):
            return RefusedError(
                f"{shown} refuses the question with {status}{message}.", blames="" if status == 413 else body
            )
        if status in (401, 403):
            wrong = "does not accept the key" if self.address.authorization else "requires a key"
            return LabellerError(f"{shown} {wrong} ({status}{message}). Set {KEYS[0]} to the right one. {_RESUMES}")
        if status == 404:
            missing = missing or "Check the address, and the name in --labeller-model."
            return MissingError(f"{shown} has no such page or model (404{message}). {missing}")
        if 300 <= status < 400:
            return LabellerError(
                f"{shown} redirects to another address ({status}), to which no key is sent. Give that address instead."
            )
        return LabellerError(f"{shown} responded with {status}{message}{again}. {_RESUMES}")

    def answer(self, body: Any) -> Answer:
        """The model's answer in a response body."""
        try:
            if "choices" not in body and "error" in body:  # from a gateway in front of the model
                raise RefusedError(f"{self.address.shown} responded with an error{message_in(json.dumps(body))}.")
            choice, usage = body["choices"][0], body.get("usage") or {}
            content = choice["message"].get("content") or ""
            parts = content if isinstance(content, list) else [{"text": content}]
            text = "".join(str(part.get("text") or "") for part in parts)
            counts = [max(0, int(usage.get(f"{kind}_tokens") or 0)) for kind in ("prompt", "completion")]
        except (ValueError, LookupError, TypeError, AttributeError):
            raise self.unexpected_response() from None
        # A lone surrogate such as "\ud800" cannot be encoded.
        clean = text.encode("utf-8", "replace").decode()
        return Answer(clean, str(choice.get("finish_reason") or "stop"), *counts)

    def unexpected_response(self) -> LabellerError:
        """The error for a response that is not in the OpenAI format."""
        return LabellerError(
            f"{self.address.shown} did not answer like an OpenAI-compatible endpoint. Check the address."
        )


def blamed_parameters(error: RefusedError, sent: Question) -> frozenset[str]:
    """The optional parameters that a refusal names, or else the most common cause, response_format."""
    parameters = [name for name in _OPTIONAL if name in sent] if error.blames else []
    return frozenset(name for name in parameters if name in error.blames) or frozenset(
        {"response_format"} & set(parameters)
    )


def message_in(body: str) -> str:
    """The server's message in an error body, if any; it is untrusted."""
    try:
        error = json.loads(body)["error"]
        words = error if isinstance(error, str) else error["message"]
    except (ValueError, LookupError, TypeError, RecursionError):
        return ""
    return f": {visible(' '.join(str(words).split()), 200)}" if words else ""
