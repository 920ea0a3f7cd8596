"""The model answers one question at a time, and drops a question when its client leaves."""

import asyncio
import threading
import time
from types import SimpleNamespace

import pytest

from ffscope.errors import InputError
from ffscope.web.model_queue import CancelledQuestion, ModelQueue, NoModel, OutOfMemory, QueueFull


class Echo:
    def about(self):
        return None


async def here():
    return False


def ask(queue, question, ticket="", is_disconnected=here):
    return asyncio.run(queue.ask(question, ticket=ticket, is_disconnected=is_disconnected))


@pytest.fixture
def queue():
    queue = ModelQueue(Echo)
    queue.start()
    yield queue
    queue.close()


def test_a_question_is_answered_by_the_models_thread(queue):
    assert ask(queue, lambda live, stop: (type(live), threading.current_thread().name)) == (Echo, "model")


def test_an_error_reaches_whoever_asked_and_the_next_is_answered(queue):
    def refuse(live, stop):
        raise InputError("no")

    with pytest.raises(InputError, match="no"):
        ask(queue, refuse)
    assert ask(queue, lambda live, stop: 3) == 3


def test_questions_are_answered_one_at_a_time_in_order(queue):
    at_work, most, order = [], [], []

    def work(number):
        def question(live, stop):
            at_work.append(number)
            most.append(len(at_work))
            time.sleep(0.01)
            at_work.remove(number)
            order.append(number)

        return question

    async def many():
        await asyncio.gather(*(queue.ask(work(number), ticket="", is_disconnected=here) for number in range(20)))

    asyncio.run(many())
    assert max(most) == 1
    assert order == list(range(20))


def test_a_ticket_tells_how_many_are_in_front(queue):
    go = threading.Event()
    places = []

    async def many():
        tasks = [
            asyncio.create_task(queue.ask(lambda live, stop: go.wait(5), ticket=f"t{i}", is_disconnected=here))
            for i in range(3)
        ]
        await asyncio.sleep(0.05)
        places.extend(queue.status(f"t{i}").ahead for i in range(3))
        places.append(queue.status("other").ahead)
        places.append(queue.status().waiting)
        go.set()
        await asyncio.gather(*tasks)

    asyncio.run(many())
    assert places == [0, 1, 2, None, 3]


def test_leaving_stops_the_model(queue):
    stopped, begun = threading.Event(), threading.Event()

    def long(live, stop):
        begun.set()
        while not stop():
            time.sleep(0.005)
        stopped.set()

    async def gone():
        return begun.is_set()

    with pytest.raises(CancelledQuestion):
        ask(queue, long, is_disconnected=gone)
    assert stopped.wait(5)
    assert ask(queue, lambda live, stop: 1) == 1


def test_a_question_left_while_waiting_is_never_run(queue):
    go, calls = threading.Event(), []

    async def many():
        first = asyncio.create_task(queue.ask(lambda live, stop: go.wait(5), ticket="", is_disconnected=here))
        second = asyncio.create_task(queue.ask(lambda live, stop: calls.append(1), ticket="", is_disconnected=here))
        await asyncio.sleep(0.05)
        second.cancel()
        await asyncio.sleep(0.05)
        go.set()
        await first

    asyncio.run(many())
    assert not calls
    assert queue.status().waiting == 0


def test_a_full_queue_refuses_questions(queue):
    go, begun = threading.Event(), threading.Event()

    def wait(live, stop):
        begun.set()
        go.wait(5)

    async def many():
        tasks = [asyncio.create_task(queue.ask(wait, ticket="", is_disconnected=here))]
        await asyncio.to_thread(begun.wait, 5)
        tasks += [asyncio.create_task(queue.ask(wait, ticket="", is_disconnected=here)) for _ in range(100)]
        await asyncio.sleep(0.2)
        try:
            with pytest.raises(QueueFull, match="100 questions"):
                await queue.ask(wait, ticket="", is_disconnected=here)
        finally:
            go.set()
        await asyncio.gather(*tasks)

    asyncio.run(many())


def test_without_a_model_and_with_one_that_cannot_be_loaded_it_says_why():
    with pytest.raises(NoModel, match="no torch here"):
        ask(ModelQueue(None, why="no torch here"), lambda live, stop: 1)

    def broken():
        time.sleep(0.1)
        raise InputError("a broken file")

    reports = []
    queue = ModelQueue(broken, report=reports.append)
    queue.start()
    assert queue.status().state == "loading"
    with pytest.raises(NoModel, match="could not be loaded: a broken file"):  # asked while it is loading
        ask(queue, lambda live, stop: 1)
    assert queue.status().state == "failed"
    with pytest.raises(NoModel, match="a broken file"):
        ask(queue, lambda live, stop: 1)
    assert reports == ["The model could not be loaded: a broken file"]


def test_it_says_when_prompts_can_be_asked_and_prepares_each_answer_in_the_model_s_thread():
    class Named(Echo):
        def about(self):
            return SimpleNamespace(model="/somewhere/wiki\x1b16/", device="cpu")

    reports, prepared = [], []
    queue = ModelQueue(Named, report=reports.append, before=lambda: prepared.append(threading.current_thread().name))
    queue.start()
    for _ in range(2):
        ask(queue, lambda live, stop: None)
    queue.close()
    assert reports == ["The model is loaded (wiki<001B>16, cpu); prompts can be run now."]
    assert prepared == ["model", "model"]


def test_waiting_questions_are_refused_when_the_explorer_ends():
    queue = ModelQueue(Echo)
    queue.start()
    begun = threading.Event()

    def long(live, stop):
        begun.set()
        while not stop():
            time.sleep(0.005)
        return "stopped"

    async def many():
        first = asyncio.create_task(queue.ask(long, ticket="", is_disconnected=here))
        await asyncio.to_thread(begun.wait, 5)
        second = asyncio.create_task(queue.ask(long, ticket="", is_disconnected=here))
        await asyncio.sleep(0.05)
        queue.close()
        return await asyncio.gather(first, second, return_exceptions=True)

    answered, refused = asyncio.run(many())
    assert answered == "stopped"
    assert isinstance(refused, NoModel)
    assert "is shutting down" in str(refused)


def test_stop_iteration_and_system_exit_are_ordinary_errors(queue):
    def odd(error):
        def question(live, stop):
            raise error

        return question

    with pytest.raises(RuntimeError, match="StopIteration"):
        ask(queue, odd(StopIteration()))
    with pytest.raises(OutOfMemory):
        ask(queue, odd(MemoryError()))

    def ending():
        raise SystemExit(3)

    failing = ModelQueue(ending)
    failing.start()
    with pytest.raises(NoModel, match="SystemExit"):
        ask(failing, lambda live, stop: 1)


def test_a_question_left_just_before_the_end_disturbs_no_other():
    queue = ModelQueue(lambda: time.sleep(0.3) or Echo())

    async def many():
        gone = asyncio.create_task(queue.ask(lambda live, stop: 1, ticket="", is_disconnected=here))
        stays = asyncio.create_task(queue.ask(lambda live, stop: 2, ticket="", is_disconnected=here))
        await asyncio.sleep(0.05)
        queue._jobs[0].answer.cancel()
        queue.close()
        return await asyncio.gather(gone, stays, return_exceptions=True)

    assert isinstance(asyncio.run(many())[1], NoModel)
