"""Questions sent together, as a batch job of the server: often half the price, and answered within a day."""

import json
import logging
import time
from collections.abc import Iterator
from typing import Any, Final

from ffscope.errors import LabellerError
from ffscope.labelling.cache import CachedEndpoint
from ffscope.labelling.endpoint import Call, MissingError, Question, RefusedError, blamed_parameters, message_in
from ffscope.progress import Progress, ProgressCallback
from ffscope.queries.labeller_answers import Answer, Job
from ffscope.tokens import visible

log = logging.getLogger(__name__)
POLL_SECONDS = 10.0
_MOST = 50_000  # requests in one batch, by OpenAI's limit; the rest go into the next
_URL: Final = "/v1/chat/completions"
_MISSING = "The server may not support batches: leave out --labeller-batch."
_GONE = "The batch no longer exists: run the same command to send its questions again."


class PendingError(Exception):
    """A question that will be sent with the next batch."""


class BatchEndpoint(CachedEndpoint):
    """Asks in batches. `ask` raises `PendingError` if an answer is not cached; `send` gets the answers to all these questions."""

    def __init__(self, *arguments: Any, **options: Any) -> None:
        super().__init__(*arguments, **options)
        self.pending: dict[str, Question] = {}
        self._failed: dict[str, RefusedError] = {}
        self._refused: dict[str, frozenset[str]] = {}  # parameters that the server did not accept, by question

    def _fetch(self, name: str, question: Question) -> Answer:
        if name in self._failed:
            raise self._failed[name]
        self.pending[name] = question
        raise PendingError

    def send(self, progress: ProgressCallback) -> None:
        """Wait for a batch of an earlier run, or send a new one, and store its answers."""
        job = self.answers.job(self.endpoint.address.shown)
        sent = {} if job else dict(list(self.pending.items())[:_MOST])
        job = job or self._upload(sent)
        try:
            batch = self._wait(self._start(job), progress)
        except (MissingError, RefusedError):  # another attempt would fail in the same way
            self.answers.drop_job(job)
            raise
        answered = {self._store(line, job.model) for line in self._lines(batch)}
        self.answers.drop_job(job)
        if batch["status"] != "completed":
            raise self._ended(batch)
        for name in sent.keys() - answered:
            self._failed[name] = RefusedError("The batch contains no answer to this question.")
        self.pending = {}

    def _upload(self, questions: dict[str, Question]) -> Job:
        """Upload the questions as a file, which is recorded here before the batch is started."""
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
        """The id of a job's batch. If it may have been started before, the server is asked: a second one would be paid for too."""
        name = job.batch or self._batch_of_file(job.file)
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

    def _batch_of_file(self, file: str) -> str | None:
        """The id of the batch that was started from a file, if any."""
        listed = self.endpoint.get(lambda client: client.batches.with_raw_response.list(limit=100), missing=_MISSING)
        batches = [batch for batch in self._field(listed, "data") if isinstance(batch, dict)]
        return next(
            (str(batch["id"]) for batch in batches if batch.get("input_file_id") == file and "id" in batch), None
        )

    def _wait(self, name: str, progress: ProgressCallback) -> dict[str, Any]:
        """Wait until a batch has ended, whatever its status."""
        try:
            while True:
                batch = self.endpoint.get(lambda client: client.batches.with_raw_response.retrieve(name), missing=_GONE)
                status = str(self._field(batch, "status"))
                progress(_batch_progress(batch, f"answers of batch {visible(name)} ({visible(status)})"))
                if status in ("completed", "failed", "expired", "cancelled"):
                    return {**batch, "id": name}
                time.sleep(POLL_SECONDS)
        except KeyboardInterrupt:
            log.warning("Batch %s continues on the server; run the same command to fetch its answers.", visible(name))
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
                        log.warning(
                            "Batch %s contains a line that is not an answer; it is skipped.", visible(batch["id"])
                        )

    def _store(self, line: dict[str, Any], model: str) -> str:
        """Store one answer, or the reason why there is none; returns the digest of its question."""
        name, response = line["custom_id"], line.get("response")
        response = response if isinstance(response, dict) else {}
        status, body = response.get("status_code", 200), response.get("body") or {"error": line.get("error")}
        try:
            if status != 200:
                raise self.endpoint.refusal(status, json.dumps(body))
            self.store(name, model, self.endpoint.answer(body))
        except LabellerError as error:
            refusal = error if isinstance(error, RefusedError) else RefusedError(str(error))
            question = self.pending.get(name)
            blamed = blamed_parameters(refusal, self._sent(name, question)) if question else frozenset()
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
            raise self.endpoint.unexpected_response() from None

    def _ended(self, batch: dict[str, Any]) -> LabellerError:
        errors = (batch.get("errors") or {}).get("data") or [{}]
        reason = message_in(json.dumps({"error": errors[0]}))
        name, status = visible(batch["id"]), visible(batch["status"])
        return LabellerError(
            f"Batch {name} at {self.endpoint.address.shown} ended with status {status}{reason}. "
            "Its answers are stored; run the same command to request the others."
        )


def _batch_progress(batch: dict[str, Any], unit: str) -> Progress:
    counts = batch.get("request_counts")
    numbers = counts if isinstance(counts, dict) else {}
    done, failed, total = (int(numbers.get(name) or 0) for name in ("completed", "failed", "total"))
    return Progress("labels", done + failed, total, unit=unit)


def _content(file: str) -> Call:
    return lambda client: client.files.with_raw_response.content(file)
