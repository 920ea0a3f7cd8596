"""Questions that are sent together, as a batch job of the server: often half the price, and answered within a day."""

import json
import logging
import time
from collections.abc import Iterator
from typing import Any, Final

from ffscope.errors import LabellerError
from ffscope.labelling.cache import Correspondence
from ffscope.labelling.endpoint import Call, MissingError, Question, RefusedError, blamed_in, message_in
from ffscope.progress import Progress, ProgressCallback
from ffscope.queries.labeller_answers import Answer, Job
from ffscope.tokens import visible

log = logging.getLogger(__name__)
POLL_SECONDS = 10.0
_MOST = 50_000  # requests in one batch, by OpenAI's limit; the rest go into the next
_URL: Final = "/v1/chat/completions"
_MISSING = "It may offer no batches: ask it without --labeller-batch."
_GONE = "The batch is no longer there: the same command sends its questions again."


class PendingError(Exception):
    """A question that waits for the next batch."""


class Batches(Correspondence):
    """A correspondence by batches. Asking raises `PendingError` where an answer is missing; `send` has all of these answered."""

    def __init__(self, *arguments: Any, **options: Any) -> None:
        super().__init__(*arguments, **options)
        self.pending: dict[str, Question] = {}
        self._failed: dict[str, RefusedError] = {}
        self._refused: dict[str, frozenset[str]] = {}  # parameters that the server did not take, by question

    def _fetch(self, name: str, question: Question) -> Answer:
        if name in self._failed:
            raise self._failed[name]
        self.pending[name] = question
        raise PendingError

    def send(self, progress: ProgressCallback) -> None:
        """Wait for a batch that an earlier run left behind, or send one; its answers are kept then."""
        job = self.answers.job(self.endpoint.address.shown)
        sent = {} if job else dict(list(self.pending.items())[:_MOST])
        job = job or self._upload(sent)
        try:
            batch = self._wait(self._start(job), progress)
        except (MissingError, RefusedError):  # another try would end in the same way
            self.answers.drop_job(job)
            raise
        answered = {self._take(line, job.model) for line in self._lines(batch)}
        self.answers.drop_job(job)
        if batch["status"] != "completed":
            raise self._ended(batch)
        for name in sent.keys() - answered:
            self._failed[name] = RefusedError("The batch holds no answer to this question.")
        self.pending = {}

    def _upload(self, questions: dict[str, Question]) -> Job:
        """The questions as a file at the server, which is known here before a batch is made of it."""
        lines = [
            json.dumps({"custom_id": name, "method": "POST", "url": _URL, "body": self._sent(name, question)})
            for name, question in questions.items()
        ]
        content = ("ffscope.jsonl", "\n".join(lines).encode())
        file = self.endpoint.get(
            lambda client: client.files.with_raw_response.create(file=content, purpose="batch"), missing=_MISSING
        )
        job = Job(self._field(file, "id"), None, self.endpoint.model)
        self.answers.put_job(job, self.endpoint.address.shown)
        return job

    def _sent(self, name: str, question: Question) -> Question:
        return self.endpoint.sent(question, self._refused.get(name, frozenset()))

    def _start(self, job: Job) -> str:
        """The batch of a job. Where it is not known whether one was started, the server is asked: a second would be paid too."""
        name = job.batch or self._made_of(job.file)
        if name is not None:
            log.info("Batch %s was sent by an earlier run; fetching its answers.", visible(name))
        else:
            batch = self.endpoint.get(
                lambda client: client.batches.with_raw_response.create(
                    input_file_id=job.file, endpoint=_URL, completion_window="24h"
                ),
                missing=_MISSING,
                max_retries=0,
            )
            name = str(self._field(batch, "id"))
        self.answers.put_job(job._replace(batch=name), self.endpoint.address.shown)
        return name

    def _made_of(self, file: str) -> str | None:
        """The batch that was made of a file, if any was."""
        listed = self.endpoint.get(lambda client: client.batches.with_raw_response.list(limit=100), missing=_MISSING)
        batches = [one for one in self._field(listed, "data") if isinstance(one, dict)]
        return next((str(one["id"]) for one in batches if one.get("input_file_id") == file and "id" in one), None)

    def _wait(self, name: str, progress: ProgressCallback) -> dict[str, Any]:
        """A batch that has ended, however it ended."""
        try:
            while True:
                batch = self.endpoint.get(lambda client: client.batches.with_raw_response.retrieve(name), missing=_GONE)
                status = str(self._field(batch, "status"))
                progress(_so_far(batch, f"answers of batch {visible(name)} ({visible(status)})"))
                if status in ("completed", "failed", "expired", "cancelled"):
                    return {**batch, "id": name}
                time.sleep(POLL_SECONDS)
        except KeyboardInterrupt:
            log.warning("Batch %s continues at the server; the same command fetches its answers.", visible(name))
            raise

    def _lines(self, batch: dict[str, Any]) -> Iterator[dict[str, Any]]:
        for file in (batch.get("output_file_id"), batch.get("error_file_id")):
            if file:
                text = self.endpoint.text(_content(file))
                for line in filter(None, text.split("\n")):
                    try:
                        answer = json.loads(line)
                    except (ValueError, RecursionError):
                        answer = None
                    if isinstance(answer, dict) and isinstance(answer.get("custom_id"), str):
                        yield answer
                    else:
                        log.warning("Batch %s holds a line that is no answer; it is skipped.", visible(batch["id"]))

    def _take(self, line: dict[str, Any], model: str) -> str:
        """Keep one answer, or why there is none; gives the digest of its question."""
        name, response = line["custom_id"], line.get("response")
        response = response if isinstance(response, dict) else {}
        status, body = response.get("status_code", 200), response.get("body") or {"error": line.get("error")}
        try:
            if status != 200:
                raise self.endpoint.refusal(status, json.dumps(body))
            self.keep(name, model, self.endpoint.answer(body))
        except LabellerError as error:
            refusal = error if isinstance(error, RefusedError) else RefusedError(str(error))
            question = self.pending.get(name)
            blamed = blamed_in(refusal, self._sent(name, question)) if question else frozenset()
            if blamed:
                self._refused[name] = self._refused.get(name, frozenset()) | blamed
            else:
                self._failed[name] = refusal
                self._refused.pop(name, None)
        else:
            self.endpoint.learn(self._refused.pop(name, frozenset()))
        return name

    def _field(self, body: Any, name: str) -> Any:
        try:
            return body[name]
        except (LookupError, TypeError):
            raise self.endpoint.foreign() from None

    def _ended(self, batch: dict[str, Any]) -> LabellerError:
        errors = (batch.get("errors") or {}).get("data") or [{}]
        reason = message_in(json.dumps({"error": errors[0]}))
        name, status = visible(batch["id"]), visible(batch["status"])
        return LabellerError(
            f"Batch {name} at {self.endpoint.address.shown} ended as {status}{reason}. "
            "Answers that it holds are kept; the same command asks for the others."
        )


def _so_far(batch: dict[str, Any], unit: str) -> Progress:
    counts = batch.get("request_counts")
    numbers = counts if isinstance(counts, dict) else {}
    done, failed, total = (int(numbers.get(name) or 0) for name in ("completed", "failed", "total"))
    return Progress("labels", done + failed, total, unit=unit)


def _content(file: str) -> Call:
    return lambda client: client.files.with_raw_response.content(file)
