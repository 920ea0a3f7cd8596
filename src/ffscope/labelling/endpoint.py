"""A language model behind an OpenAI-compatible address: vLLM, llama.cpp, Ollama, or a hosted one."""

import json
import logging
from collections.abc import Mapping
from dataclasses import dataclass
from threading import Event
from typing import Any

import urllib3
from urllib3.exceptions import HTTPError, NewConnectionError, ProtocolError, ReadTimeoutError, SSLError

from ffscope.errors import LabellerError
from ffscope.labelling.address import KEYS, Address
from ffscope.tokens import visible

log = logging.getLogger(__name__)
Question = dict[str, Any]  # a request's body
_AGAIN = {408, 409, 425, 429, 500, 502, 503, 504, 529}  # another time it may go well
_LONGEST = 60.0  # seconds of one wait
_KEPT = "What was answered is kept: the same command goes on with it."
# Wishes that some servers do not take; a server that refuses one is asked without it.
_WISHES = ("response_format", "seed", "temperature", "max_tokens", "max_completion_tokens")


class RefusedError(LabellerError):
    """One question that the endpoint does not take, as one too long for the model; another may go well."""


class StoppedError(LabellerError):
    """A question that is not asked any more, since its asker gives up."""


@dataclass(frozen=True)
class Answer:
    """What a model said, why it ended, and the tokens that were counted."""

    text: str
    finish: str
    prompt_tokens: int
    completion_tokens: int


class Endpoint:
    """A language model that is asked over HTTP. Any number of threads may ask it at once."""

    def __init__(
        self,
        url: str,
        *,
        model: str | None = None,
        timeout: float = 300.0,
        retries: int = 5,
        backoff: float = 1.0,
        max_tokens: int = 2048,
    ) -> None:
        self.address = Address.parse(url)
        self.timeout, self.retries, self.backoff, self.max_tokens = timeout, retries, backoff, max_tokens
        self._pool = urllib3.PoolManager(maxsize=64, timeout=urllib3.Timeout(connect=min(10.0, timeout), read=timeout))
        self._refused: frozenset[str] = frozenset()
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
        """Let the connections go."""
        self._pool.clear()

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

    def ask(self, question: Question, *, stopped: Event) -> Answer:
        """The model's answer. Waits and asks again where that may help, until `stopped` is set."""
        refused = self._refused
        while True:
            sent = _without(question, refused)
            status, body = self._send("POST", "chat/completions", sent, stopped)
            if status == 200:
                answer = self._answer(body)
                self._learn(refused)
                return answer
            blamed = _blamed(body, sent) if status in (400, 422) else set()
            if not blamed:
                raise self._refusal(status, body)
            refused |= blamed

    def _learn(self, refused: frozenset[str]) -> None:
        """Remember what a server does not take, once it has answered without: it may have been something else."""
        if not refused <= self._refused:
            log.info("%s does not take %s: it is asked without.", self.address.shown, ", ".join(sorted(refused)))
            self._refused |= refused

    def _only_model(self) -> str:
        status, body = self._send("GET", "models", None, Event())
        if status != 200:
            raise self._refusal(status, body)
        try:
            names = [str(model["id"]) for model in json.loads(body)["data"]]
        except (ValueError, LookupError, TypeError, RecursionError):
            raise LabellerError(
                f"{self.address.shown}/models lists no models. Name one with --labeller-model."
            ) from None
        if len(names) != 1:
            listed = ", ".join(visible(name) for name in sorted(names)[:20]) or "none"
            raise LabellerError(
                f"{self.address.shown} has {len(names)} models: {listed}. Name one with --labeller-model."
            )
        return names[0]

    def _send(self, method: str, what: str, question: Question | None, stopped: Event) -> tuple[int, str]:
        """An answer's status and body, asked for as often as it may help.

        urllib3's own retrying is not used: it waits where nobody can stop it, and logs the whole address.
        """
        headers = {"Accept": "application/json", "User-Agent": "ffscope"}
        if self.address.authorization:
            headers["Authorization"] = self.address.authorization
        tries = 0
        while True:
            if stopped.is_set():
                raise StoppedError("Not asked: the labelling was stopped.")
            retries, pause = self.retries, self.backoff * 2**tries
            try:
                response = self._pool.request(
                    method, self.address.to(what), headers=headers, json=question, retries=False, redirect=False
                )
            except (NewConnectionError, SSLError) as error:
                raise self._unreachable(error) from None
            except HTTPError as error:
                why = self._broken(error)
                # The server may be at work on the first one still: more would only add to it.
                retries = min(retries, 1) if isinstance(error, ReadTimeoutError) else retries
            else:
                body = self.address.hide(response.data.decode("utf-8", "replace"))
                if response.status not in _AGAIN:
                    return response.status, body
                why = f"answers {response.status}{_said(body)}"
                pause = _retry_after(response.headers, pause)
            self._wait(why, pause, retries - tries, stopped)
            tries += 1

    def _wait(self, why: str, pause: float, left: int, stopped: Event) -> None:
        """Before a question is asked again: as long as the server wants, within reason."""
        shown = self.address.shown
        if left <= 0:
            raise LabellerError(f"{shown} {why}, also when asked again. {_KEPT}")
        if pause > _LONGEST * left:
            raise LabellerError(f"{shown} {why}, and wants to be asked again in {pause:,.0f} s only. {_KEPT}")
        log.warning("%s %s; asking again in %.0f s.", shown, why, min(pause, _LONGEST))
        stopped.wait(min(pause, _LONGEST))

    def _unreachable(self, error: HTTPError) -> LabellerError:
        shown = self.address.shown
        if isinstance(error, SSLError):
            return LabellerError(f"{shown} cannot be trusted: {visible(str(error), 160)}. Check the address. {_KEPT}")
        why = "connection refused" if "refused" in str(error) else "no such host, or no way to it"
        return LabellerError(
            f"Nothing answers at {shown} ({why}). Is the server running, and is this its address? {_KEPT}"
        )

    def _broken(self, error: HTTPError) -> str:
        if isinstance(error, ReadTimeoutError):
            return f"gave no answer in {self.timeout:g} s (--labeller-timeout allows more)"
        return "broke the connection" if isinstance(error, ProtocolError) else f"failed ({type(error).__name__})"

    def _refusal(self, status: int, body: str) -> LabellerError:
        """What a status that is no answer means, and what to do."""
        shown, said = self.address.shown, _said(body)
        if status in (400, 413, 422):
            return RefusedError(f"{shown} refuses the question with {status}{said}.")
        if status in (401, 403):
            wrong = "does not accept the key" if self.address.authorization else "wants a key"
            return LabellerError(f"{shown} {wrong} ({status}{said}). Put the right one into {KEYS[0]}. {_KEPT}")
        if status == 404:
            return LabellerError(
                f"{shown} has no such page or model (404{said}). Check the address, and the name given with --labeller-model."
            )
        if 300 <= status < 400:
            return LabellerError(
                f"{shown} sends elsewhere ({status}), and a key is sent to no other address. Give that one."
            )
        return LabellerError(f"{shown} answers {status}{said}. {_KEPT}")

    def _answer(self, body: str) -> Answer:
        try:
            said = json.loads(body)
            if "choices" not in said and "error" in said:  # as a gateway says of what stands behind it
                raise RefusedError(f"{self.address.shown} answers with an error{_said(body)}.")
            choice, usage = said["choices"][0], said.get("usage") or {}
            content = choice["message"].get("content") or ""
            parts = content if isinstance(content, list) else [{"text": content}]
            text = "".join(str(part.get("text") or "") for part in parts)
            counts = [max(0, int(usage.get(f"{kind}_tokens") or 0)) for kind in ("prompt", "completion")]
        except (ValueError, LookupError, TypeError, AttributeError, RecursionError):
            raise LabellerError(
                f"{self.address.shown}/chat/completions does not answer as an OpenAI-compatible endpoint does. Check the address."
            ) from None
        # Half a character, as "\ud800", can be written nowhere.
        clean = text.encode("utf-8", "replace").decode()
        return Answer(clean, str(choice.get("finish_reason") or "stop"), *counts)


def _without(question: Question, refused: frozenset[str]) -> Question:
    sent = {name: wish for name, wish in question.items() if name not in refused}
    if "max_tokens" in refused and "max_completion_tokens" not in refused:
        sent["max_completion_tokens"] = question["max_tokens"]  # as newer models of OpenAI call it
    return sent


def _blamed(body: str, sent: Question) -> set[str]:
    """The wishes that a refusal names, or else the one that most often is to blame."""
    wishes = [wish for wish in _WISHES if wish in sent]
    return {wish for wish in wishes if wish in body} or {"response_format"} & set(wishes)


def _said(body: str) -> str:
    """The server's own words, where it has some; they are untrusted."""
    try:
        error = json.loads(body)["error"]
        words = error if isinstance(error, str) else error["message"]
    except (ValueError, LookupError, TypeError, RecursionError):
        return ""
    return f": {visible(' '.join(str(words).split()), 200)}" if words else ""


def _retry_after(headers: Mapping[str, str], otherwise: float) -> float:
    """Seconds that a server asks for, where it asks in a way that can be read."""
    try:
        return float(urllib3.Retry().parse_retry_after(headers["Retry-After"])) or otherwise
    except (KeyError, HTTPError, ValueError, OverflowError, TypeError):
        return otherwise
