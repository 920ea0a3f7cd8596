"""The prompt page: a text layer by layer, and the effect of interventions, compared with the same calls in Python."""

import re
import shlex
from urllib.parse import parse_qs, urlsplit

import pytest
from playwright.sync_api import expect

from browser.pages import cells, fits, numbers
from command_line import ffscope as run_command
from ffscope.errors import GradientError
from ffscope.live.interventions import Interventions
from ffscope.live.model import Live
from ffscope.models.loading import load
from ffscope.models.saving import save_model
from ffscope.tokens import spelling

pytestmark = pytest.mark.browser
TEXT = "The cat sat"
MEMORIES = "Memories with the largest effect, over all layers"
POSITIONS = len(TEXT) + 1  # letters are tokens, after BOS


@pytest.fixture(scope="module")
def live(model):
    return Live(model, bos=True, tokens=40, new_tokens=12)


@pytest.fixture
def read(browse, site):
    """The page after the text was run."""
    page = browse(f"{site}/prompt")
    page.get_by_label("Text", exact=True).fill(TEXT)
    page.get_by_role("button", name="Run").click()
    is_read(page)
    return page


def is_read(page):
    """Wait until every answer is there."""
    expect(page.get_by_role("grid")).to_be_visible()
    expect(page.locator("[aria-busy]")).to_have_count(0)


def link_of(page):
    return {name: value for name, (value,) in parse_qs(urlsplit(page.url).query).items()}


def part(page, title):
    return page.locator("section").filter(has=page.get_by_role("heading", name=title))


def prediction(page):
    """The rows of the final prediction: a token and its numbers."""
    table = part(page, "Final prediction").locator("table")
    rows = cells(table)[1:]
    return [(row[0], *(number for cell in row[1:-1] for number in numbers(cell)[:1])) for row in rows]


def expected_prediction(model, position=-1, **edits):
    """The same in Python: token, probability and rank without the edits, and with them where there are some."""
    before = model.trace(TEXT).logits[0, position].float().softmax(-1)
    with model.edit(**edits):
        after = model.trace(TEXT).logits[0, position].float().softmax(-1)
    rank = lambda chances, token: int((chances > chances[token]).sum()) + 1  # noqa: E731
    rows = []
    for token in after.argsort(descending=True)[:12].tolist():
        row = [spelling(model.tokenizer, token), 100 * before[token].item(), rank(before, token)]
        rows.append((*row, 100 * after[token].item(), rank(after, token)) if edits else tuple(row))
    return rows


def is_prediction(page, expected):
    """The shown prediction is the expected one, to the last digit shown."""
    shown = prediction(page)
    assert [row[0] for row in shown] == [row[0] for row in expected]
    for mine, theirs in zip(shown, expected, strict=True):
        assert mine[1 : len(theirs)] == pytest.approx(theirs[1:], abs=0.051)


def test_the_grid_has_the_top_token_of_every_layer_and_position(read, model):
    lens, trace = model.lens("norm"), model.trace(TEXT)
    rows = cells(read.get_by_role("grid"))
    assert len(rows) == 4
    assert [row[0] for row in rows] == ["Layer", "L2", "L1", "L0"]  # the first layer at the bottom
    assert rows[0][1:] == ["<s>", *TEXT.replace(" ", "␣")]
    for row, layer in zip(rows[1:], (2, 1, 0), strict=True):
        top = [lens.states(trace.output[layer][0, at], layer).argmax().item() for at in range(POSITIONS)]
        assert row[1:] == [spelling(model.tokenizer, token) for token in top]
    assert link_of(read) == {"text": TEXT}
    is_prediction(read, expected_prediction(model))


def test_the_grid_can_be_read_from_the_residual_and_coloured_otherwise(browse, read, model):
    read.get_by_label("Read from").select_option("residual")
    is_read(read)
    lens, trace = model.lens("norm"), model.trace(TEXT)
    top = [lens.states(trace.residual[0][0, at], 0).argmax().item() for at in range(POSITIONS)]
    expect(read.get_by_role("row").filter(has=read.get_by_role("rowheader", name="L0")).first).to_contain_text("L0")
    assert cells(read.get_by_role("grid"))[3][1:] == [spelling(model.tokenizer, token) for token in top]
    read.get_by_label("Colour by").select_option("entropy")
    expect(read.get_by_text("Entropy in bits:")).to_be_visible()
    again = browse(read.url)
    is_read(again)
    expect(again.get_by_text("Entropy in bits:")).to_be_visible()
    assert cells(again.get_by_role("grid")) == cells(read.get_by_role("grid"))


def test_arrows_lead_through_the_grid_and_enter_chooses_the_position(read, model):
    cell = read.get_by_role("gridcell").nth(POSITIONS - 1)  # of the last layer, at the last token
    expect(cell).to_have_attribute("tabindex", "0")
    cell.focus()
    read.keyboard.press("ArrowDown")
    read.keyboard.press("ArrowLeft")
    expect(read.get_by_role("gridcell").nth(2 * POSITIONS - 2)).to_be_focused()
    expect(read.locator("[role=gridcell][tabindex='0']")).to_have_count(1)
    tip = read.get_by_role("tooltip")
    expect(tip).to_contain_text("L1 after a")
    logits = model.lens("norm").states(model.trace(TEXT).output[1][0, POSITIONS - 2], 1).float().softmax(-1)
    best = logits.topk(10)
    shown = cells(tip.locator("table"))
    assert [row[0] for row in shown] == [spelling(model.tokenizer, token) for token in best.indices.tolist()]
    assert [numbers(row[1])[0] for row in shown] == pytest.approx([100 * p for p in best.values.tolist()], abs=0.051)
    read.keyboard.press("Home")
    expect(read.get_by_role("gridcell").nth(POSITIONS)).to_be_focused()
    read.keyboard.press("End")
    read.keyboard.press("ArrowLeft")
    read.keyboard.press("Enter")
    expect(part(read, "Layer by layer").get_by_role("heading")).to_contain_text(f"at position {POSITIONS - 2}")
    is_read(read)
    is_prediction(read, expected_prediction(model, POSITIONS - 2))
    assert link_of(read)["position"] == str(POSITIONS - 2)
    expect(read.get_by_role("gridcell").nth(2 * POSITIONS - 2)).to_be_focused()


def test_the_ten_best_stay_in_sight_where_the_grid_scrolls(browse, site):
    page = browse(f"{site}/prompt?text={TEXT} on a mat and it flew", width=600)
    is_read(page)
    page.get_by_role("gridcell").first.focus()
    tip = page.get_by_role("tooltip")
    for key, token in (("End", "w"), ("Home", "<s>"), ("ArrowRight", "T")):
        page.keyboard.press(key)
        page.wait_for_timeout(100)  # the scroll event comes a moment later
        expect(tip).to_contain_text(f"L2 after {token}")
        box, cell = tip.bounding_box(), page.locator(":focus").bounding_box()
        assert 0 <= box["x"] <= 600 - box["width"]
        assert 0 <= cell["x"] <= 600 - cell["width"]
    page.keyboard.press("Escape")
    expect(tip).to_be_hidden()


def test_steps_list_the_memories_with_the_largest_weights(read, live):
    rows = cells(part(read, "Layer by layer").locator("table"))[1:]
    for row, step in zip(rows, live.prompt(TEXT).steps, strict=True):
        assert row[0] == f"L{step.layer}"
        assert row[1].startswith(step.before.token)
        assert numbers(row[3])[-1] == pytest.approx(100 * step.after.probability, abs=0.051)
        assert (row[4], int(row[5])) == (step.case, step.active)
        assert re.findall(r"L\d+\.\d+", row[6]) == [memory.memory for memory in step.memories]
        weights = [float(shown.replace("−", "-")) for shown in re.findall(r"(\S+) ×", row[6])]
        assert weights == pytest.approx([memory.coefficient for memory in step.memories], rel=0.06, abs=1e-3)


def test_a_position_is_chosen_by_a_click(browse, read, model):
    read.get_by_role("gridcell").nth(4).click()
    expect(part(read, "Layer by layer").get_by_role("heading")).to_contain_text("at position 4")
    is_read(read)
    is_prediction(read, expected_prediction(model, 4))
    again = browse(read.url)
    is_read(again)
    is_prediction(again, expected_prediction(model, 4))


def test_switching_off_from_the_steps_gives_pythons_numbers(browse, read, model):
    button = part(read, "Layer by layer").get_by_role("button", name=re.compile(r"^Switch L2\.\d+ off$")).first
    memory = button.get_attribute("aria-label").split()[1]
    button.click()
    expect(read.get_by_text("1 memory is changed:")).to_be_visible()
    is_read(read)
    expected = expected_prediction(model, zero=[memory])
    assert any(abs(row[1] - row[3]) > 0.1 for row in expected)
    is_prediction(read, expected)
    assert link_of(read) == {"text": TEXT, "zero": memory}
    again = browse(read.url)
    is_read(again)
    is_prediction(again, expected)
    expect(again.get_by_text(f"{memory} switched off")).to_be_visible()
    read.get_by_role("button", name=f"Remove {memory}").click()
    expect(read.get_by_text("No memory is changed.")).to_be_visible()
    is_read(read)
    is_prediction(read, expected_prediction(model))
    read.go_back()
    expect(read.get_by_text("1 memory is changed:")).to_be_visible()


def test_scaling_and_setting_give_pythons_numbers(browse, read, model):
    button = part(read, "Layer by layer").get_by_role("button", name=re.compile(r"^Scale or set L1\.\d+$")).first
    memory = button.get_attribute("aria-label").split()[-1]
    button.click()
    dialog = read.get_by_role("dialog", name=f"Change {memory}")
    dialog.get_by_label("Number").fill("-7.5")
    dialog.get_by_role("button", name="Apply").click()
    expect(read.get_by_text("1 memory is changed:")).to_be_visible()
    panel = part(read, "Interventions")
    panel.get_by_label("Memory or whole layer").fill("2.9")
    panel.get_by_label("Kind of change").select_option("set")
    panel.get_by_label("Number").fill("4")
    panel.get_by_role("button", name="Add").click()
    expect(read.get_by_text("2 memories are changed:")).to_be_visible()
    is_read(read)
    expected = expected_prediction(model, scale={memory: -7.5}, set={"L2.9": 4.0})
    assert any(abs(row[1] - row[3]) > 1 for row in expected)
    is_prediction(read, expected)
    assert link_of(read) == {"text": TEXT, "scale": f"{memory}:-7.5", "set": "L2.9:4"}
    again = browse(read.url)
    is_read(again)
    is_prediction(again, expected)
    effect = again.get_by_role("status").filter(has_text="2 memories are changed")
    best = max(model.trace(TEXT).logits[0, -1].float().softmax(-1)).item()
    assert numbers(effect.inner_text())[1] == pytest.approx(100 * best, abs=0.051)
    panel.get_by_role("button", name="Remove L2.9").click()
    expect(read.get_by_text("1 memory is changed:")).to_be_visible()
    is_read(read)
    is_prediction(read, expected_prediction(model, scale={memory: -7.5}))
    panel.get_by_role("button", name="Clear all").click()
    expect(read.get_by_text("No memory is changed.")).to_be_visible()
    is_read(read)
    is_prediction(read, expected_prediction(model))
    assert link_of(read) == {"text": TEXT}


def test_whole_layers_at_chosen_positions_give_pythons_numbers(browse, read, model):
    panel = part(read, "Interventions")
    panel.get_by_label("Memory or whole layer").fill("L1")
    panel.get_by_role("button", name="Add").click()
    expect(read.get_by_text("1 layer is changed:")).to_be_visible()
    is_read(read)
    is_prediction(read, expected_prediction(model, zero=["L1"]))
    panel.get_by_label("At positions").fill("3, -1")
    panel.get_by_role("button", name="Apply").click()
    expect(read.get_by_text("1 layer is changed at positions 3,-1:")).to_be_visible()
    is_read(read)
    expected = expected_prediction(model, zero=["L1"], positions=[3, -1])
    assert expected != expected_prediction(model, zero=["L1"])
    is_prediction(read, expected)
    assert link_of(read) == {"text": TEXT, "zero": "L1", "positions": "3,-1"}
    again = browse(f"{read.url}&zero=L2.3&positions=0")  # repeated parameters add up
    is_read(again)
    is_prediction(again, expected_prediction(model, zero=["L1", "L2.3"], positions=[3, -1, 0]))
    expect(again.get_by_text("1 memory and 1 layer are changed at positions 3,-1,0:")).to_be_visible()
    # A memory of a changed layer can only be restored together with its layer.
    row = (
        part(again, "Memories with the largest effect, over all layers")
        .get_by_role("row")
        .filter(has_text=re.compile(r"L1\.\d"))
    )
    if row.count():
        row.first.get_by_role("button", name="Undo the change of L1").click()
        expect(again.get_by_text("1 memory is changed at positions 3,-1,0:")).to_be_visible()
    part(read, "Interventions").get_by_role("button", name="Only the selected token").click()
    expect(read.get_by_text(f"1 layer is changed at position {POSITIONS - 1}:")).to_be_visible()
    is_read(read)
    is_prediction(read, expected_prediction(model, zero=["L1"], positions=[-1]))


def test_a_link_that_is_not_understood_is_a_page_with_a_sentence(browse, site):
    browse.expects("status of 400")
    for query, sentence in (
        ("off=L1.2", "takes no parameter 'off'. It takes: text,"),
        ("position=1&position=2", "The parameter 'position' is given 2 times."),
    ):
        page = browse(f"{site}/prompt?text={TEXT}&{query}")
        expect(page.get_by_text(sentence)).to_be_visible()


def test_memories_of_all_layers_are_ranked_without_choosing_tokens(browse, read, live):
    section = part(read, "Memories with the largest effect, over all layers")

    def shows_ranking(page, ranked):
        rows = cells(part(page, "Memories with the largest effect, over all layers").locator("table"))[1:]
        assert [row[0].split()[0] for row in rows] == [memory.memory for memory in ranked.memories[: len(rows)]]
        assert len(rows) == 12
        for row, expected in zip(rows, ranked.memories, strict=False):
            assert numbers(row[0].split(maxsplit=1)[1])[0] == pytest.approx(expected.coefficient, rel=0.06, abs=1e-3)
            assert numbers(row[1])[0] == pytest.approx(expected.push, rel=0.06, abs=1e-3)
            assert numbers(row[2])[0] == pytest.approx(100 * expected.share_of_layer, abs=0.051)
            assert numbers(row[3])[0] == pytest.approx(100 * expected.share_of_all, abs=0.051)
            assert row[5].split() == [text for token in expected.promotes for text in token.split()]

    shows_ranking(read, live.memories(TEXT, count=50))
    section.get_by_label("Rank by").select_option("size")
    expect(section.get_by_text("the size of what each memory adds to the residual")).to_be_visible()
    is_read(read)
    shows_ranking(read, live.memories(TEXT, by="size", count=50))
    assert link_of(read) == {"text": TEXT, "by": "size"}
    section.get_by_role("button", name="Show 50").click()
    assert len(cells(section.locator("table"))) == 51
    again = browse(read.url)
    is_read(again)
    shows_ranking(again, live.memories(TEXT, by="size", count=50))
    memory = live.memories(TEXT, by="size").memories[0].memory
    part(again, "Memories with the largest effect, over all layers").get_by_role(
        "button", name=f"Switch {memory} off"
    ).click()
    expect(again.get_by_text("1 memory is changed:")).to_be_visible()
    is_read(again)
    shows_ranking(again, live.memories(TEXT, by="size", count=50, interventions=Interventions.parse(memory)))


def test_memories_are_ranked_by_their_effect(browse, read, live):
    section = part(read, MEMORIES)
    section.get_by_label("Rank by").select_option("effect on the predicted token’s log-probability")
    expect(section).to_contain_text(
        "Estimated to first order from the gradient; switch the memory off to see the exact change."
    )
    is_read(read)
    assert link_of(read) == {"text": TEXT, "by": "effect"}
    ranked = live.memories(TEXT, by="effect", count=50)
    expect(section).to_contain_text(f"the log-probability of {ranked.target.token}, the token predicted after t,")

    def shows_effects(page, ranked):
        heads, *rows = cells(part(page, MEMORIES).locator("table"))
        assert heads == ["Memory", "Effect", "Change", "Promoted tokens"]
        for row, expected in zip(rows, ranked.memories[:12], strict=True):
            assert row[0].split()[0] == expected.memory
            assert numbers(row[1]) == [pytest.approx(expected.effect, rel=0.06, abs=1e-3)]
            assert row[1].startswith("+" if expected.effect > 0 else "−")
            assert row[3].split() == [text for token in expected.promotes for text in token.split()]

    shows_effects(read, ranked)
    assert {row.effect > 0 for row in ranked.memories[:12]} == {True, False}
    widths = [bar.bounding_box()["width"] for bar in section.locator(".push-bar").all()]
    sizes = [abs(row.effect) for row in ranked.memories[:12]]
    assert widths == pytest.approx([widths[0] * size / sizes[0] for size in sizes], abs=1)
    memory = ranked.memories[0].memory
    section.get_by_role("button", name=f"Switch {memory} off").click()
    expect(read.get_by_text("1 memory is changed:")).to_be_visible()
    is_read(read)
    off = Interventions.parse(memory)
    shows_effects(read, live.memories(TEXT, by="effect", interventions=off, count=50))
    phone = browse(read.url, width=400)
    is_read(phone)
    fits(phone)
    expect(part(phone, MEMORIES)).to_contain_text("Ranked by effect")


def test_a_model_without_gradients_is_a_sentence(browse, read, monkeypatch):
    browse.expects("status of 400")

    def fail(*_args, **_kwargs):
        raise GradientError("Effects are estimated from gradients, and this model cannot be differentiated.")

    monkeypatch.setattr("ffscope.live.ranking.memory_effects", fail)
    section = part(read, MEMORIES)
    section.get_by_label("Rank by").select_option("effect")
    expect(section.locator(".problem")).to_have_text(re.compile("this model cannot be differentiated"))
    expect(section.get_by_role("row")).to_have_count(0)
    section.get_by_label("Rank by").select_option("size")
    expect(section.get_by_text("the size of what each memory adds to the residual")).to_be_visible()
    expect(section.locator(".problem")).to_have_count(0)


def test_a_negative_coefficient_has_a_true_minus_and_stands_before_the_multiplication_sign(read, live):
    negative = [memory for memory in live.memories(TEXT, count=50).memories[:12] if memory.coefficient < 0]
    assert negative
    for memory in negative:
        link = read.get_by_role("link", name=memory.memory, exact=True)
        row = part(read, "Memories with the largest effect, over all layers").get_by_role("row").filter(has=link)
        assert re.search(rf"^{re.escape(memory.memory)}\s+−\d[\d.e-]* ×", row.inner_text())
        expect(row.locator(".promoting")).to_have_attribute("title", re.compile("those that its value suppresses"))
    assert "×-" not in read.locator("main").inner_text()
    assert "×−" not in read.locator("main").inner_text()


@pytest.mark.parametrize("query", ["", "&zero=L1.3,L2&a=a&b=b&new_tokens=5&by=size"])
def test_on_a_phone_every_button_is_inside_the_screen(browse, site, query):
    page = browse(f"{site}/prompt?text={TEXT} on a mat{query}", width=400)
    is_read(page)
    fits(page)
    for button in page.locator("main button:visible").all():
        box = button.bounding_box()
        assert box["x"] >= 0, button
        assert box["x"] + box["width"] <= 400, button.get_attribute("aria-label")
    assert page.get_by_role("button", name=re.compile(r"^(Switch|Undo the change of) L\d")).count() > 20
    assert page.get_by_role("button", name=re.compile(r"^Compare .* as [AB]$")).count() > 20


def test_buttons_are_large_enough_and_have_names_of_their_own(browse, site):
    page = browse(f"{site}/prompt?text={TEXT}&zero=L1.3&a=a&b=b")
    is_read(page)
    for button in page.locator("main button:visible").all():
        box = button.bounding_box()
        assert box["width"] >= 24
        assert box["height"] >= 24, button.get_attribute("aria-label")
    compare = page.get_by_role("button", name=re.compile("^Compare ")).all()
    names = [button.get_attribute("aria-label") for button in compare]
    assert len(names) == len(set(names)) > 20


def test_a_wrong_name_is_answered_by_a_sentence(read):
    box = part(read, "Interventions").get_by_label("Memory or whole layer")
    for name, wrong in (
        ("nobody", "Write a memory as L3.17"),
        ("L9.1", "There is no layer 9"),
        ("L1.22", "There is no memory 22 in layer 1"),
    ):
        box.fill(name)
        box.press("Enter")
        assert wrong in box.evaluate("(box) => box.validationMessage")
    assert link_of(read) == {"text": TEXT}


def test_a_wrong_name_in_a_link_is_a_sentence_and_can_be_taken_away(browse, site, model):
    browse.expects("status of 40")
    page = browse(f"{site}/prompt?text={TEXT}&zero=L9.1")
    expect(page.get_by_text("no layer 9")).to_be_visible()
    expect(page.get_by_role("grid")).to_be_hidden()
    page.get_by_role("button", name="Remove L9.1").click()
    is_read(page)
    is_prediction(page, expected_prediction(model))
    expect(page.get_by_text("no layer 9")).to_have_count(0)


def test_why_a_rather_than_b_has_the_pushes_of_the_python_call(browse, read, live):
    best = live.prompt(TEXT).distribution
    why = part(read, "Why A rather than B")
    expect(why.get_by_label("Token A")).to_have_value(best[0].token)
    expect(why.get_by_label("Token B")).to_have_value(best[1].token)
    part(read, "Final prediction").get_by_role("button", name=f"Compare {best[5].token} as B", exact=True).click()
    expect(why.get_by_label("Token B")).to_have_value(best[5].token)
    why.get_by_role("button", name="Compare").click()
    expected = live.why(TEXT, a=f"#{best[0].id}", b=f"#{best[5].id}")

    def shows_pushes(page):
        why = part(page, "Why A rather than B")
        expect(why.get_by_text("the difference of their logits")).to_be_visible()
        sentence = why.get_by_text("the difference of their logits").inner_text()
        assert sentence.startswith(f"{best[0].token} is ahead of {best[5].token}")
        assert numbers(sentence.removeprefix(f"{best[0].token} is ahead of {best[5].token}"))[0] == pytest.approx(
            expected.difference, rel=6e-3
        )
        pushes, layers = (cells(table)[1:] for table in why.locator("table").all())
        assert [row[0].split()[0] for row in pushes] == [memory.memory for memory in expected.memories]
        assert [numbers(row[1])[0] for row in pushes] == pytest.approx(
            [memory.push for memory in expected.memories], rel=0.06, abs=1e-4
        )
        assert [row[0] for row in layers] == ["Embedding", "L0", "L1", "L2", "Biases"]
        for row, layer in zip(layers[1:4], expected.layers, strict=True):
            assert [numbers(cell)[0] for cell in row[1:]] == pytest.approx([layer.ff, layer.rest], rel=0.06, abs=1e-4)

    shows_pushes(read)
    assert (link_of(read)["a"], link_of(read)["b"]) == (f"#{best[0].id}", f"#{best[5].id}")
    again = browse(read.url)
    is_read(again)
    shows_pushes(again)
    part(again, "Why A rather than B").get_by_role("button", name=f"Switch {expected.memories[0].memory} off").click()
    expect(again.get_by_text("1 memory is changed:")).to_be_visible()
    is_read(again)
    off = live.why(
        TEXT,
        a=f"#{best[0].id}",
        b=f"#{best[5].id}",
        interventions=Interventions.parse(expected.memories[0].memory, "", ""),
    )
    sentence = again.get_by_text("the difference of their logits").inner_text()
    assert numbers(sentence)[-1] == pytest.approx(abs(off.difference), rel=6e-3)


def test_a_text_that_is_not_one_token_is_refused_in_a_sentence(browse, read):
    browse.expects("status of 400")
    why = part(read, "Why A rather than B")
    why.get_by_label("Token A").fill("nothing")
    why.get_by_role("button", name="Compare").click()
    expect(why.get_by_text("is not one token")).to_be_visible()
    why.get_by_label("Token A").fill("a")
    why.get_by_role("button", name="Compare").click()
    expect(why.get_by_text("the difference of their logits")).to_be_visible()
    expect(why.get_by_text("is not one token")).to_have_count(0)


def written(page):
    return [text.replace("∎", "") for text in page.locator(".generated").all_inner_texts()]


def spelt(tokens):
    return "".join(re.sub("^␣+|␣+$", lambda spaces: " " * len(spaces[0]), token) for token in tokens)


def test_the_text_continues_as_in_python_without_and_with_interventions(browse, read, live):
    words = part(read, "Generated text")
    expect(words.get_by_label("Number of new tokens")).to_have_attribute("max", "12")
    words.get_by_role("button", name="Generate").click()  # as many as it offers
    expect(words.locator(".generated")).to_have_count(1)
    is_read(read)
    assert written(read) == [TEXT + spelt(live.generate(TEXT, new_tokens=12).before)]
    words.get_by_label("Number of new tokens").fill("7")
    words.get_by_label("Number of new tokens").press("Enter")
    is_read(read)
    expect(words.locator(".generated")).to_have_text(TEXT + spelt(live.generate(TEXT, new_tokens=7).before))
    again = browse(f"{read.url}&set=L2.9:30")
    is_read(again)
    expect(part(again, "Generated text").get_by_role("heading", name="With interventions")).to_be_visible()
    generated = live.generate(TEXT, new_tokens=7, interventions=Interventions.parse("", "", "L2.9:30"))
    assert generated.before != generated.after
    assert written(again) == [TEXT + spelt(generated.before), TEXT + spelt(generated.after)]
    first = next(i for i, (a, b) in enumerate(zip(generated.before, generated.after, strict=False)) if a != b)
    expect(again.get_by_title("the first token that differs").first).to_have_text(spelt([generated.before[first]]))


def test_examples_lead_to_a_reading(browse, site):
    page = browse(f"{site}/prompt")
    expect(page.get_by_role("grid")).to_be_hidden()
    page.get_by_role("button", name="Run").click()
    expect(page.get_by_text("There is no text yet.")).to_be_visible()
    page.get_by_role("link", name="The capital of France is").click()
    is_read(page)
    expect(page.get_by_label("Text", exact=True)).to_have_value("The capital of France is")


def test_a_text_that_is_too_long_is_refused_in_a_sentence(browse, read):
    browse.expects("status of 400")
    read.get_by_label("Text", exact=True).fill("a" * 60)
    read.get_by_label("Text", exact=True).press("Control+Enter")
    expect(read.get_by_text("Shorten it")).to_be_visible()
    expect(read.get_by_role("grid")).to_be_hidden()
    read.go_back()
    is_read(read)
    expect(read.get_by_label("Text", exact=True)).to_have_value(TEXT)


def test_without_the_model_it_says_what_it_needs(browse, still):
    page = browse(f"{still}/prompt?text={TEXT}")
    expect(page.get_by_text("This needs the model. Started with --no-model.")).to_be_visible()
    expect(page.get_by_role("textbox")).to_have_count(0)


def test_the_command_that_writes_the_interventions_is_shown(browse, site, model, tmp_path):
    page = browse(f"{site}/prompt?text={TEXT}&zero=L0.3,L2&scale=L1.5:2.5")
    is_read(page)
    panel = page.locator("details.write-edit")
    panel.get_by_text("Write this edit…").click()
    command = panel.locator("code").text_content()
    assert command == "ffscope edit tiny/llama --zero L0.3,L2 --scale L1.5=2.5 --out edited"
    words = shlex.split(command)
    words[2], words[-1] = str(tmp_path / "model"), str(tmp_path / "edited")
    save_model(model.model, model.tokenizer, tmp_path / "model")
    assert run_command(*words[1:]).returncode == 0
    written = load(str(tmp_path / "edited"), device="cpu")
    is_prediction(page, expected_prediction(model, zero=["L0.3", "L2"], scale={"L1.5": 2.5}))
    after = [row[3] for row in prediction(page)]
    chances = 100 * written.trace(TEXT).logits[0, -1].softmax(-1).sort(descending=True).values
    assert after == pytest.approx(chances[: len(after)].tolist(), abs=0.051)
    panel.get_by_role("button", name="Copy").click()
    expect(panel.get_by_role("status")).not_to_be_empty()


def test_interventions_that_cannot_be_written_say_why(browse, site):
    page = browse(f"{site}/prompt?text={TEXT}&zero=L0.3&positions=-1")
    is_read(page)
    panel = page.locator("details.write-edit")
    panel.get_by_text("Write this edit…").click()
    expect(panel).to_contain_text("these interventions at some positions only")
    expect(panel.locator("code")).to_have_count(0)
    page.get_by_label("At positions").fill("")
    page.get_by_role("button", name="Apply").click()
    is_read(page)
    expect(panel.locator("code")).to_have_text("ffscope edit tiny/llama --zero L0.3 --out edited")
    page.get_by_role("button", name="Clear all").click()
    expect(panel).to_be_hidden()
