"""Rules for the explorer's scripts: no text becomes markup, and an export can bundle them into one script."""

import re
from pathlib import Path

import ffscope.web
from ffscope.web.export import _without_modules, bundled_script

STATIC = Path(ffscope.web.__file__).parent / "static"
MODULES = {file.name: file.read_text(encoding="utf-8") for file in sorted(STATIC.glob("*.js"))}
IMPORT = re.compile(r'^import \{([^}]*)\} from "\./(\w+\.js)";$', re.MULTILINE)
DECLARED = re.compile(r"^(?:export )?(?:async function\*?|function\*?|class|const|let|var) +(\w+)", re.MULTILINE)
EXPORTED = re.compile(r"^export (?:async function|function|class|const|let) +(\w+)", re.MULTILINE)
# Comments may mention what the code may not use.
COMMENT = re.compile(r"^\s*//[^\n]*|\s// [^\n]*", re.MULTILINE)
FORBIDDEN = (
    r"\binnerHTML\b",
    r"\bouterHTML\b",
    r"\binsertAdjacentHTML\b",
    r"\bdocument\.write",
    r"\beval\b",
    r"\bFunction\(",
    r"\bDOMParser\b",
    r"\bcreateContextualFragment\b",
    r"\bsetHTML",
    r"\bsrcdoc\b",
    r"javascript:",
    r"set(?:Timeout|Interval)\(\s*[\"'`]",  # code as text
    r"\bimport\(",
    r"\bexport (?:default|\{|\*)",
    r"https?://",
)


def code(name):
    return COMMENT.sub("", MODULES[name])


def names_in(imports):
    return [name.strip() for name in imports.split(",") if name.strip()]


def test_there_are_modules():
    assert "main.js" in MODULES
    assert len(MODULES) > 20


def test_text_never_becomes_markup_or_code():
    for name in MODULES:
        for wrong in FORBIDDEN:
            assert not re.search(wrong, code(name)), f"{name}: {wrong}"


def test_the_forbidden_patterns_match_bad_code():
    for bad in (
        "a.innerHTML = b",
        "eval(x)",
        "new Function('x')",
        "export default a",
        'setTimeout("a()")',
        "import('x')",
    ):
        assert any(re.search(wrong, bad) for wrong in FORBIDDEN), bad


def test_files_and_lines_stay_short():
    for name, source in MODULES.items():
        lines = source.splitlines()
        assert len(lines) <= 250, f"{name} has {len(lines)} lines: look for a seam"
        assert max(map(len, lines)) <= 132, f"{name} has a long line"


def test_no_two_modules_declare_the_same_name():
    owners = {}
    for name in MODULES:
        for declared in DECLARED.findall(code(name)):
            owners.setdefault(declared, []).append(name)
    assert {declared: names for declared, names in owners.items() if len(names) > 1} == {}


def test_imports_are_of_the_form_that_an_export_drops():
    for name, source in MODULES.items():
        plain = IMPORT.findall(source)
        assert len(plain) == len(re.findall(r"^\s*import\b", code(name), re.MULTILINE)), name
        for imports, module in plain:
            assert " as " not in imports, name
            assert module in MODULES, f"{name} imports {module}, which is not there"
            missing = set(names_in(imports)) - set(EXPORTED.findall(MODULES[module]))
            assert not missing, f"{name} imports {missing}, which {module} does not export"
        left = COMMENT.sub("", _without_modules(source))
        assert not re.search(r"^\s*(?:import|export)\b", left, re.MULTILINE), name


def test_what_is_imported_is_used():
    for name, source in MODULES.items():
        body = COMMENT.sub("", IMPORT.sub("", source))
        for imports, _ in IMPORT.findall(source):
            unused = [imported for imported in names_in(imports) if not re.search(rf"\b{imported}\b", body)]
            assert not unused, f"{name} does not use {unused}"


def test_every_module_is_reached_from_the_first():
    reached, pending = set(), ["main.js"]
    while pending:
        name = pending.pop()
        if name not in reached:
            reached.add(name)
            pending += [module for _, module in IMPORT.findall(MODULES[name])]
    assert reached == set(MODULES)


def test_one_script_has_all_modules_and_begins_last():
    script = bundled_script()
    for name in MODULES:
        for declared in DECLARED.findall(code(name)):
            assert re.search(rf"\b{re.escape(declared)}\b", script)
    assert script.rstrip().removesuffix("})();").rstrip().endswith("begin();")
