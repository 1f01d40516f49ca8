"""What holds for the packages as a whole: public names, who imports whom, what a wheel holds."""

from __future__ import annotations

import ast
import graphlib
import importlib.metadata
import re
import subprocess
import sys
import tomllib
import zipfile
from collections.abc import Iterator
from pathlib import Path

import pytest

from guarded_core.ground.moved import MOVED

ROOT = Path(__file__).parents[1]
PACKAGES = {
    "guarded_core": ROOT / "core" / "guarded_core",
    "guarded_langchain": ROOT / "guarded_langchain",
    "guarded_llamaindex": ROOT / "guarded_llamaindex",
}

# The rooms of the core, from the ground up: a module imports from its own room and those above this line, never from
# below; for types and inside functions too. A module that stands apart from its room is named with it.
LAYERS = [
    "ground",
    "display",
    "tools",
    "provenance",
    "rules",
    "audit",
    "approvals",
    "policy",
    "store",
    "session",
    "pipeline",
    "preview",
    "registry",
    "guard",
    "testing",
    "display.cards",
    "cli",
    "",  # guarded_core itself, whose __init__ gathers the public names
]
# The packages of a framework, by how their names begin.
LANGCHAIN = ("langchain", "langgraph", "langsmith")
LLAMAINDEX = ("llama_index", "workflows")
# Third-party packages that only some modules import as they load; everywhere else inside a function, when it is needed.
ONLY_IN = {
    "typer": r"guarded_core\.cli\b",
    "rich": r"guarded_core\.cli\b",
    "opentelemetry": r"guarded_core\.pipeline\.otel",
    "sqlalchemy": r"guarded_core\.store\.sql",
    "psycopg": r"guarded_core\.store\.sql",
    "cryptography": r"guarded_core\.provenance\.seals",
}
# All that `import guarded_core` may load beside the standard library: what checks every call. Pydantic comes with the
# first typed function or policy file.
LOADED = {"jsonschema_rs", "orjson", "rfc8785"}


def modules(package: str) -> dict[str, ast.Module]:
    """The syntax tree of every module of a package, by the name it is imported under."""
    folder = PACKAGES[package]
    trees = {}
    for path in sorted(folder.rglob("*.py")):
        parts = [package, *path.relative_to(folder).with_suffix("").parts]
        trees[".".join(parts).removesuffix(".__init__")] = ast.parse(path.read_text(), path)
    return trees


def is_type_checking(node: ast.AST) -> bool:
    """Whether this is an ``if TYPE_CHECKING:``, whose body never runs."""
    return isinstance(node, ast.If) and ast.unparse(node.test) in {"TYPE_CHECKING", "typing.TYPE_CHECKING"}


def imports(tree: ast.AST, *, lazy: bool) -> Iterator[str]:
    """What a module imports as it loads; with `lazy`, also what its functions import, and what only types need."""
    for node in ast.iter_child_nodes(tree):
        if isinstance(node, ast.Import):
            yield from (alias.name for alias in node.names)
        elif isinstance(node, ast.ImportFrom):
            assert node.level == 0, "imports are absolute"
            # `from package import module` names a module too.
            yield from (f"{node.module}.{alias.name}" for alias in node.names)
        elif lazy or not (isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef) or is_type_checking(node)):
            yield from imports(node, lazy=lazy)


def layer(module: str) -> int:
    """The line of `LAYERS` that a core module stands on: its own, or else its room's."""
    name = module.removeprefix("guarded_core").removeprefix(".")
    own = [number for number, room in enumerate(LAYERS) if name == room]
    found = own or [number for number, room in enumerate(LAYERS) if name.partition(".")[0] == room]
    assert found, f"{module} has no place in LAYERS yet: say which modules it may import"
    return found[0]


def resolved(name: str, known: dict[str, ast.Module]) -> str:
    """The module that an imported name is, or stands in."""
    while name not in known:
        name = name.rpartition(".")[0]
    return name


CORE = modules("guarded_core")
CORE_GRAPH = {
    module: {resolved(name, CORE) for name in imports(tree, lazy=True) if name.split(".")[0] == "guarded_core"}
    for module, tree in CORE.items()
}


PINNED = [name.rpartition(".") for name in (ROOT / "tests" / "public_names.txt").read_text().split()]


@pytest.mark.parametrize("public", sorted({module for module, _, _ in PINNED}))
def test_public_names_are_pinned(public: str) -> None:
    """``__all__`` is what tests/public_names.txt says, and each name is there: a change of the public face is seen."""
    module = importlib.import_module(public)
    assert sorted(module.__all__) == sorted(name for of, _, name in PINNED if of == public)
    assert [name for name in module.__all__ if not hasattr(module, name)] == []


@pytest.mark.parametrize("module", CORE)
def test_core_imports_run_one_way(module: str) -> None:
    """A module of the core imports nothing from a later line of `LAYERS`: not late in a function, not for types."""
    assert {name for name in CORE_GRAPH[module] if layer(name) > layer(module)} == set()


def test_core_imports_are_no_circle() -> None:
    """No module of the core needs itself, by whatever kind of import."""
    graphlib.TopologicalSorter(CORE_GRAPH).prepare()


def test_the_architecture_page_shows_the_layers() -> None:
    """Its table has each of `LAYERS` in order, its picture names each, and every file that it names is there."""
    page, picture = (ROOT / "docs" / "architecture.md").read_text(), (ROOT / "docs" / "layers.svg").read_text()
    rooms = re.findall(r"^\| `([\w.]+)` \|", page, re.MULTILINE)
    assert rooms == [room for room in LAYERS if room]
    assert [room for room in rooms if not re.search(rf"\b{room.split('.')[0]}\b", picture)] == []
    assert [path for path in re.findall(r"`((?:\w+/)+\w+\.py)`", page) if not (ROOT / path).exists()] == []


@pytest.mark.parametrize("module", CORE)
def test_core_imports_no_framework(module: str) -> None:
    """The core imports no framework and no adapter, not even for types; the command line may, in its functions."""
    foreign = (*LANGCHAIN, *LLAMAINDEX, "guarded_langchain", "guarded_llamaindex")
    lazy = not module.startswith("guarded_core.cli")
    assert [name for name in imports(CORE[module], lazy=lazy) if name.startswith(foreign)] == []


@pytest.mark.parametrize(
    ("package", "foreign"),
    [
        ("guarded_langchain", ("guarded_llamaindex", *LLAMAINDEX)),
        ("guarded_llamaindex", ("guarded_langchain", *LANGCHAIN)),
    ],
)
def test_adapters_never_meet(package: str, foreign: tuple[str, ...]) -> None:
    """An adapter imports neither the other one nor its framework, nowhere."""
    imported = [name for tree in modules(package).values() for name in imports(tree, lazy=True)]
    assert [name for name in imported if name.startswith(foreign)] == []


def test_top_level_reads_like_the_way_of_a_call() -> None:
    """The core has at most sixteen rooms and entries beside its ``__init__``: a flat heap hides its layers."""
    entries = {path.name for path in PACKAGES["guarded_core"].iterdir()} - {"__init__.py", "py.typed", "__pycache__"}
    assert len(entries) <= 16


@pytest.mark.parametrize(("before", "places"), MOVED.items())
def test_old_import_paths_warn(before: str, places: tuple[str, ...]) -> None:
    """A module that was moved is found under its old name for one release: all its names are there, and it warns."""
    sys.modules.pop(before, None)
    with pytest.warns(DeprecationWarning, match=rf"^{re.escape(before)} is "):
        old = importlib.import_module(before)
    for place in places:
        new = importlib.import_module(place)
        for name in vars(new):
            if not name.startswith("__"):
                assert hasattr(old, name)
    with pytest.raises(AttributeError, match="moved to"):
        old.never_was_there  # noqa: B018


def test_old_names_warn() -> None:
    """A name that left its module is found there for one release, and warns."""
    from guarded_core import display

    with pytest.warns(DeprecationWarning, match=r"guarded_core\.approvals\.card\.request_text now"):
        assert display.request_text is importlib.import_module("guarded_core.approvals.card").request_text


@pytest.mark.parametrize("package", PACKAGES)
def test_extras_load_late(package: str) -> None:
    """Only the module that is about an extra's package imports it as it loads."""
    early = {
        (module, name)
        for module, tree in modules(package).items()
        for name in imports(tree, lazy=False)
        if (place := ONLY_IN.get(name.split(".")[0])) and not re.match(place, module)
    }
    assert early == set()


def test_importing_the_core_loads_little() -> None:
    """``import guarded_core`` loads, of all that is installed, a short list: no framework, no extra, no SQL."""
    code = "import sys; before = set(sys.modules); import guarded_core; print(*set(sys.modules) - before)"
    out = subprocess.run([sys.executable, "-c", code], cwd=ROOT, check=True, capture_output=True, text=True).stdout
    loaded = {name.split(".")[0] for name in out.split()}
    installed = importlib.metadata.packages_distributions().keys() - PACKAGES.keys()
    assert "guarded_core" in loaded
    assert loaded & installed <= LOADED


def test_wheel_holds_the_packages_and_nothing_else(tmp_path: Path) -> None:
    """A wheel has the three packages' files, each package marked as typed, the licence, and nothing beside."""
    build = [sys.executable, "-m", "hatchling", "build", "--target", "wheel", "--directory", str(tmp_path)]
    subprocess.run(build, cwd=ROOT, check=True, capture_output=True)
    (wheel,) = tmp_path.glob("*.whl")
    held = set(zipfile.ZipFile(wheel).namelist())
    metadata = {name for name in held if ".dist-info/" in name}
    files = [path for folder in PACKAGES.values() for path in folder.rglob("*") if path.is_file()]
    wanted = {path.relative_to(ROOT).as_posix().removeprefix("core/") for path in files if path.suffix != ".pyc"}
    assert held - metadata == wanted
    assert wanted >= {f"{package}/py.typed" for package in PACKAGES}
    assert any(name.endswith("/licenses/LICENSE") for name in metadata)


def test_floor_is_what_the_metadata_promises() -> None:
    """tests/floor.txt pins the lower bound of every dependency that users get, where the frameworks allow it."""
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
    extras = project["optional-dependencies"]
    del extras["notebooks"]  # not imported by the packages
    stated = "\n".join(sum(extras.values(), project["dependencies"]))
    bounds = {f"{name}=={version}" for name, version in re.findall(r"^([\w-]+)(?:\[\w+\])?>=([\w.]+)", stated, re.M)}
    floor = set(re.findall(r"^[\w-]+==.+$", (ROOT / "tests" / "floor.txt").read_text(), re.M))
    assert bounds - floor == {"orjson==3.10", "pydantic==2.10"}
    assert floor <= bounds


def test_no_file_names_a_place_on_one_machine() -> None:
    """No file of the repository has a path that only its author's machine has."""
    listed = subprocess.run(
        ["git", "ls-files", "--cached", "--others", "--exclude-standard"], cwd=ROOT, capture_output=True, text=True
    )
    if listed.returncode:
        pytest.skip("not a git work tree")
    private = re.compile(rb"(?<![\w.-])/(?:work|root)/|/tmp/prob[e]")
    files = [ROOT / name for name in listed.stdout.splitlines()]
    assert [path.name for path in files if path.is_file() and private.search(path.read_bytes())] == []


def test_hooks_check_what_lint_checks() -> None:
    """A commit that passes the hooks passes `make lint`'s ruff and mypy: the same tools, of the same environment."""
    hooks = re.findall(r"entry: \.venv/bin/(.+)", (ROOT / ".pre-commit-config.yaml").read_text())
    lint = re.findall(r"\$\(BIN\)/(.+)", (ROOT / "Makefile").read_text().split("\nlint:")[1].split("\n\n")[0])
    assert [hook.removesuffix(" --force-exclude") for hook in hooks] == [line for line in lint if "pyright" not in line]


def test_drawings_are_out_of_diffs_and_searches() -> None:
    """Each drawing of a program is marked as generated, and taken for binary."""
    drawn = subprocess.run(
        ["git", "ls-files", "*.svg"], cwd=ROOT, capture_output=True, text=True, check=True
    ).stdout.split()
    told = subprocess.run(
        ["git", "check-attr", "diff", "linguist-generated", "--", *drawn],
        cwd=ROOT,
        capture_output=True,
        text=True,
        check=True,
    ).stdout
    assert drawn
    assert told.count(": diff: unset\n") == told.count(": linguist-generated: set\n") == len(drawn)
