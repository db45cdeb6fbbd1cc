"""What no module of ours may do: run what stands in a file. Found by reading the syntax tree."""

from __future__ import annotations

import ast
from collections.abc import Iterator

MODULES = {
    *("pickle", "_pickle", "cPickle", "dill", "cloudpickle", "shelve", "marshal", "joblib"),
    *("yaml", "jsonpickle", "runpy", "pty", "imp", "code"),
}
# By the whole name, whatever it was imported as.
NAMES = {
    *("torch.load", "torch.jit.load", "torch.hub", "torch.package", "torch.serialization"),
    *("os.system", "os.popen", "os.startfile", "subprocess.getoutput"),
    *(
        "subprocess.getstatusoutput",
        "asyncio.create_subprocess_shell",
        "numpy.lib.format.read_array",
    ),
    *("builtins.eval", "builtins.exec", "builtins.compile", "builtins.__import__"),
}
PREFIXES = ("os.exec", "os.spawn", "os.posix_spawn")
BUILT_IN = {"eval", "exec", "compile", "__import__"}
# By the last part alone, whatever stands before it.
ATTRIBUTES = {
    *("read_pickle", "to_pickle", "extractall", "unpack_archive", "load_checkpoint"),
    *("broadcast_object_list", "all_gather_object", "gather_object", "scatter_object_list"),
}
REACHABLE = {"torch", "os", "numpy", "subprocess", "builtins", "sys"}  # not by a computed name


def violations(source: str, imports_by_table: bool = False) -> list[str]:
    """Each banned thing in `source`; `imports_by_table` allows import_module of a computed name."""
    tree = ast.parse(source)
    known = dict(_imported_names(tree))
    found = [f"imports {name}" for name in known.values() if _is_banned(name)]
    for node in ast.walk(tree):
        name = _full_name(node, known)
        if name is not None and _is_banned(name):
            found.append(f"line {node.lineno}: {name}")
        if isinstance(node, ast.Name) and node.id in BUILT_IN and node.id not in known:
            found.append(f"line {node.lineno}: {node.id}")
        if isinstance(node, ast.Attribute) and node.attr in ATTRIBUTES:
            found.append(f"line {node.lineno}: .{node.attr}")
        if isinstance(node, ast.Call):
            found += [f"line {node.lineno}: {w}" for w in _calls(node, known, imports_by_table)]
    return found


def _imported_names(tree: ast.AST) -> Iterator[tuple[str, str]]:
    """The local name of each import, and what it stands for."""
    for node in ast.walk(tree):
        if isinstance(node, ast.Import):
            for alias in node.names:
                yield (
                    alias.asname or alias.name.split(".")[0],
                    (alias.name if alias.asname else alias.name.split(".")[0]),
                )
                yield f"import {alias.name}", alias.name
        elif isinstance(node, ast.ImportFrom) and node.module and not node.level:
            for alias in node.names:
                yield alias.asname or alias.name, f"{node.module}.{alias.name}"


def _full_name(node: ast.AST, known: dict[str, str]) -> str | None:
    parts: list[str] = []
    while isinstance(node, ast.Attribute):
        parts.append(node.attr)
        node = node.value
    if not isinstance(node, ast.Name) or node.id not in known:
        return None
    return ".".join([known[node.id], *reversed(parts)])


def _is_banned(name: str) -> bool:
    within = {name.rsplit(".", count)[0] for count in range(name.count(".") + 1)}
    return bool(
        name.split(".")[0] in MODULES
        or within & NAMES
        or name.startswith(PREFIXES)
        or name.split(".")[-1] in ATTRIBUTES
    )


def _calls(node: ast.Call, known: dict[str, str], imports_by_table: bool) -> Iterator[str]:
    name = _full_name(node.func, known) or ""
    given = {keyword.arg: keyword.value for keyword in node.keywords}
    if "shell" in given and not _is_false(given["shell"]):
        yield "shell="
    if name.startswith("subprocess."):
        if None in given:
            yield "subprocess with **, which may hide shell=True"
        if node.args and isinstance(node.args[0], (ast.JoinedStr, ast.Constant, ast.BinOp)):
            yield "subprocess with a string for a command"
    if name == "numpy.load" and not _is_false(given.get("allow_pickle")):
        yield "numpy.load without allow_pickle=False"
    first = node.args[0] if node.args else None
    if name == "importlib.import_module":
        if not isinstance(first, ast.Constant):
            if not imports_by_table:
                yield "import_module of a computed name"
        elif _is_banned(str(first.value)):
            yield f"import_module of {first.value}"
    if isinstance(node.func, ast.Name) and node.func.id in ("getattr", "attrgetter"):
        owner = _full_name(first, known) if first is not None else None
        wanted = node.args[1] if len(node.args) > 1 else None
        if isinstance(wanted, ast.Constant):
            if _is_banned(f"{owner}.{wanted.value}") or wanted.value in BUILT_IN:
                yield f"getattr for {owner}.{wanted.value}"
        elif owner in REACHABLE:
            yield f"getattr of {owner} by a computed name"


def _is_false(node: ast.AST | None) -> bool:
    return isinstance(node, ast.Constant) and node.value is False
