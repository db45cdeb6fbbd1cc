"""Find code that could execute the contents of a file: pickle, eval, shell commands and the like.

No module of the project may contain such code. The syntax tree is searched for it.
"""

from __future__ import annotations

import ast
from collections.abc import Iterator

MODULES = {
    "_pickle",
    "cPickle",
    "cloudpickle",
    "code",
    "dill",
    "imp",
    "joblib",
    "jsonpickle",
    "marshal",
    "pickle",
    "pty",
    "runpy",
    "shelve",
    "yaml",
}
# Full names, regardless of the name under which they are imported.
NAMES = {
    "asyncio.create_subprocess_shell",
    "builtins.__import__",
    "builtins.compile",
    "builtins.eval",
    "builtins.exec",
    "numpy.lib.format.read_array",
    "os.popen",
    "os.startfile",
    "os.system",
    "subprocess.getoutput",
    "subprocess.getstatusoutput",
    "torch.hub",
    "torch.jit.load",
    "torch.load",
    "torch.package",
    "torch.serialization",
}
PREFIXES = ("os.exec", "os.spawn", "os.posix_spawn")
BUILTINS = {"eval", "exec", "compile", "__import__"}
# Attributes of any object.
ATTRIBUTES = {
    "all_gather_object",
    "broadcast_object_list",
    "extractall",
    "gather_object",
    "load_checkpoint",
    "read_pickle",
    "scatter_object_list",
    "to_pickle",
    "unpack_archive",
}
# Modules whose attributes must not be looked up by a computed name.
NO_COMPUTED_ATTRIBUTES = {"torch", "os", "numpy", "subprocess", "builtins", "sys"}


def violations(source: str, imports_by_table: bool = False) -> list[str]:
    """Return a description of every banned construct in `source`.

    `imports_by_table` allows `import_module` with a computed name.
    """
    tree = ast.parse(source)
    imports = dict(_imported_names(tree))
    found = [f"imports {name}" for name in imports.values() if _is_banned(name)]
    for node in ast.walk(tree):
        name = _full_name(node, imports)
        if name is not None and _is_banned(name):
            found.append(f"line {node.lineno}: {name}")
        if isinstance(node, ast.Name) and node.id in BUILTINS and node.id not in imports:
            found.append(f"line {node.lineno}: {node.id}")
        if isinstance(node, ast.Attribute) and node.attr in ATTRIBUTES:
            found.append(f"line {node.lineno}: .{node.attr}")
        if isinstance(node, ast.Call):
            found += [
                f"line {node.lineno}: {reason}"
                for reason in _banned_calls(node, imports, imports_by_table)
            ]
    return found


def _imported_names(tree: ast.AST) -> Iterator[tuple[str, str]]:
    """Yield the local name and the full name of each import."""
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


def _full_name(node: ast.AST, imports: dict[str, str]) -> str | None:
    """Return the full name of an imported name or attribute, or None."""
    parts: list[str] = []
    while isinstance(node, ast.Attribute):
        parts.append(node.attr)
        node = node.value
    if not isinstance(node, ast.Name) or node.id not in imports:
        return None
    return ".".join([imports[node.id], *reversed(parts)])


def _is_banned(name: str) -> bool:
    within = {name.rsplit(".", count)[0] for count in range(name.count(".") + 1)}
    return bool(
        name.split(".")[0] in MODULES
        or within & NAMES
        or name.startswith(PREFIXES)
        or name.split(".")[-1] in ATTRIBUTES
    )


def _banned_calls(node: ast.Call, imports: dict[str, str], imports_by_table: bool) -> Iterator[str]:
    name = _full_name(node.func, imports) or ""
    given = {keyword.arg: keyword.value for keyword in node.keywords}
    if "shell" in given and not _is_false(given["shell"]):
        yield "shell="
    if name.startswith("subprocess."):
        if None in given:
            yield "subprocess with **, which could pass shell=True"
        if node.args and isinstance(node.args[0], (ast.JoinedStr, ast.Constant, ast.BinOp)):
            yield "subprocess with a string as its command"
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
        owner = _full_name(first, imports) if first is not None else None
        wanted = node.args[1] if len(node.args) > 1 else None
        if isinstance(wanted, ast.Constant):
            if _is_banned(f"{owner}.{wanted.value}") or wanted.value in BUILTINS:
                yield f"getattr for {owner}.{wanted.value}"
        elif owner in NO_COMPUTED_ATTRIBUTES:
            yield f"getattr of {owner} by a computed name"


def _is_false(node: ast.AST | None) -> bool:
    return isinstance(node, ast.Constant) and node.value is False
