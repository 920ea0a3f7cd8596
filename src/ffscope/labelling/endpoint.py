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
Call = Callable[["OpenAI"], Any]  # asks the SDK for a raw response
_INSTALL = "A labeller is asked with the openai package, which is not installed here: pip install 'ffscope[label]'"
_KEPT = "What was answered is kept: the same command resumes with it."
# Wishes that some servers do not take; a server that refuses one is asked without it.
_WISHES = ("response_format", "seed", "temperature", "max_tokens", "max_completion_tokens")


class RefusedError(LabellerError):
    """One question that the endpoint does not take, as one too long for the model; another may go well."""

    def __init__(self, message: str, *, blames: str = "") -> None:
        super().__init__(message)
        self.blames = blames  # what the server says against the question's parameters


class MissingError(LabellerError):
    """Something that the server does not have."""


class StoppedError(LabellerError):
    """A question that is not asked any more, since the labelling was stopped."""


class Endpoint:
    """A language model that is asked over HTTP. Any number of threads may ask it at once, until `stopped` is set."""

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
        """What is asked, as one would like it answered: the same words for the same question."""
        return {
            "model": self.model,
            "messages": messages,
            "temperature": 0,
            "seed": seed,
            "max_tokens": self.max_tokens,
            "response_format": {"type": "json_object"},
        }

    def ask(self, question: Question) -> Answer:
        """The model's answer; without a parameter that the server does not take."""
        refused: frozenset[str] = frozenset()
        while True:
            sent = self.sent(question, refused)
            try:
                answer = self.answer(self.get(self._chat(sent)))
            except RefusedError as error:
                blamed = blamed_in(error, sent)
                if not blamed:
                    raise
                refused |= blamed
            else:
                self.learn(refused)
                return answer

    def _chat(self, sent: Question) -> Call:
        return lambda client: client.chat.completions.with_raw_response.create(**sent)

    def sent(self, question: Question, refused: frozenset[str]) -> Question:
        """A question without parameters that the server has refused, of this question or of all."""
        refused |= self._refused
        sent = {name: wish for name, wish in question.items() if name not in refused}
        if "max_tokens" in refused and "max_completion_tokens" not in refused:
            sent["max_completion_tokens"] = question["max_tokens"]  # as newer models of OpenAI call it
        return sent

    def learn(self, refused: frozenset[str]) -> None:
        """Remember what a server does not take, once it has answered without: it may have been something else."""
        if not refused <= self._refused:
            log.info("%s does not take %s: it is asked without.", self.address.shown, ", ".join(sorted(refused)))
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
        """The JSON that a call of the SDK gets."""
        text = self.text(call, **options)
        try:
            return json.loads(text)
        except (ValueError, RecursionError):
            raise self.foreign() from None

    def text(self, call: Call, *, missing: str = "", **options: Any) -> str:
        """The text that a call of the SDK gets, without secrets; what goes wrong is one sentence. `missing` explains a 404."""
        import openai

        from ffscope.labelling.client import UnreachableError

        try:
            response = call(self._client.with_options(**options))
            return self.address.hide(response.text)
        except openai.APIStatusError as error:
            body = self.address.hide(error.response.text)
            again = ", also when asked again" if error.request.extensions.get("tried", 1) > 1 else ""
            if (wait := error.response.headers.get("retry-after")) and error.status_code not in (400, 413, 422):
                again += f", and asks to wait {visible(wait, 20)} s"
            raise self.refusal(error.status_code, body, missing=missing, again=again) from None
        except UnreachableError as error:
            raise LabellerError(f"{error} {_KEPT}") from None
        except openai.APITimeoutError:
            raise LabellerError(
                f"{self.address.shown} gave no answer in {self.timeout:g} s (--labeller-timeout allows more). {_KEPT}"
            ) from None
        except openai.APIConnectionError:
            raise LabellerError(f"{self.address.shown} broke the connection, also when asked again. {_KEPT}") from None

    def refusal(self, status: int, body: str, *, missing: str = "", again: str = "") -> LabellerError:
        """What a status that is no answer means, and what to do."""
        shown, said = self.address.shown, message_in(body)
        if status in (400, 413, 422):
            return RefusedError(
                f"{shown} refuses the question with {status}{said}.", blames="" if status == 413 else body
            )
        if status in (401, 403):
            wrong = "does not accept the key" if self.address.authorization else "wants a key"
            return LabellerError(f"{shown} {wrong} ({status}{said}). Put the right one into {KEYS[0]}. {_KEPT}")
        if status == 404:
            missing = missing or "Check the address, and the name given with --labeller-model."
            return MissingError(f"{shown} has no such page or model (404{said}). {missing}")
        if 300 <= status < 400:
            return LabellerError(
                f"{shown} sends elsewhere ({status}), and a key is sent to no other address. Give that one."
            )
        return LabellerError(f"{shown} answers {status}{said}{again}. {_KEPT}")

    def answer(self, body: Any) -> Answer:
        """A model's answer, out of what the server sent."""
        try:
            if "choices" not in body and "error" in body:  # as a gateway says of what stands behind it
                raise RefusedError(f"{self.address.shown} answers with an error{message_in(json.dumps(body))}.")
            choice, usage = body["choices"][0], body.get("usage") or {}
            content = choice["message"].get("content") or ""
            parts = content if isinstance(content, list) else [{"text": content}]
            text = "".join(str(part.get("text") or "") for part in parts)
            counts = [max(0, int(usage.get(f"{kind}_tokens") or 0)) for kind in ("prompt", "completion")]
        except (ValueError, LookupError, TypeError, AttributeError):
            raise self.foreign() from None
        # Half a character, as "\ud800", can be written nowhere.
        clean = text.encode("utf-8", "replace").decode()
        return Answer(clean, str(choice.get("finish_reason") or "stop"), *counts)

    def foreign(self) -> LabellerError:
        """An answer of another kind than was asked for."""
        return LabellerError(
            f"{self.address.shown} does not answer as an OpenAI-compatible endpoint does. Check the address."
        )


def blamed_in(error: RefusedError, sent: Question) -> frozenset[str]:
    """The parameters that a refusal names, or else the one that most often is to blame."""
    wishes = [wish for wish in _WISHES if wish in sent] if error.blames else []
    return frozenset(wish for wish in wishes if wish in error.blames) or frozenset({"response_format"} & set(wishes))


def message_in(body: str) -> str:
    """The server's own words in an error, where it has some; they are untrusted."""
    try:
        error = json.loads(body)["error"]
        words = error if isinstance(error, str) else error["message"]
    except (ValueError, LookupError, TypeError, RecursionError):
        return ""
    return f": {visible(' '.join(str(words).split()), 200)}" if words else ""
