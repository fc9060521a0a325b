"""Takes the prose out of the repository's files: documents, comments, and messages to a user.

Every function yields (line number, text) for each paragraph, comment or message, code left out.
"""
import ast
import io
import re
import tokenize

_FENCE = re.compile(r"^\s*(```|~~~)")
_ITEM = re.compile(r"^\s*(?:[-*+]|\d+[.)])\s+")
_INLINE_CODE = re.compile(r"`[^`\n]*`")
_LINK = re.compile(r"\[([^\]]*)\]\([^)]*\)")
_CXX = re.compile(
    r"(?P<comment>//[^\n]*(?:\n[ \t]*//[^\n]*)*|/\*.*?\*/)"
    r'|(?P<raw>R"(?P<mark>\w*)\((?P<body>.*?)\)(?P=mark)")'
    r'|(?P<string>(?:"(?:\\.|[^"\\\n])*"\s*)+)'
    r"|'(?:\\.|[^'\\\n])+'",
    re.DOTALL,
)
_WORD = re.compile(r"[A-Za-z][\w'’-]*")
# A string of fewer words is a name, a key or a format, not a sentence.
_MESSAGE_WORDS = 3


def plain(text):
    """The words of Markdown, with code as one word and links as their text."""
    return re.sub(r"[*_]{2}", "", _LINK.sub(r"\1", _INLINE_CODE.sub("CODE", text)))


def markdown(text):
    """Paragraphs, list items and cells of tables; a heading is a paragraph of its own."""
    fenced, start, block = False, 0, []

    def flush():
        if block:
            yield start, plain(" ".join(block))
            block.clear()

    for number, line in enumerate(text.splitlines(), 1):
        if _FENCE.match(line):
            yield from flush()
            fenced = not fenced
            continue
        ends = not line.strip() or line.startswith(("#", "<!--")) or _ITEM.match(line)
        if fenced or ends or line.startswith("|"):
            yield from flush()
        if fenced or not line.strip() or line.startswith(("    ", "<!--")) and not block:
            continue
        if line.startswith("|"):
            yield from ((number, plain(cell)) for cell in line.strip("| ").split(" | "))
        elif line.startswith("#"):
            yield number, plain(line.lstrip("# "))
        else:
            start = start if block else number
            block.append(_ITEM.sub("", line.strip()) if not block else line.strip())
    yield from flush()


def _is_message(text):
    return len(_WORD.findall(text)) >= _MESSAGE_WORDS


def cxx(text):
    """(kind, line, text) of a C++ or .def file: "comments" and "messages"."""
    for found in _CXX.finditer(text):
        line = text.count("\n", 0, found.start()) + 1
        if found["comment"]:
            yield "comments", line, re.sub(r"\n?[ \t]*(//+|/\*+|\*+/)", " ", found["comment"])
        elif found["raw"] or found["string"]:
            body = found["body"] or re.sub(r'"\s*"|^"|"\s*$', "", found["string"] or "")
            if _is_message(body):
                yield "messages", line, body


def python(text):
    """(kind, line, text) of a Python file: comments and docstrings, and other strings."""
    tree = ast.parse(text)
    docstrings = {
        (node.body[0].value.lineno, node.body[0].value.col_offset)
        for node in ast.walk(tree)
        if isinstance(node, (ast.Module, ast.ClassDef, ast.FunctionDef)) and ast.get_docstring(node)
    }
    for node in ast.walk(tree):
        if isinstance(node, ast.Constant) and isinstance(node.value, str):
            kind = "comments" if (node.lineno, node.col_offset) in docstrings else "messages"
            if kind == "comments" or _is_message(node.value):
                yield kind, node.lineno, node.value
    for token in tokenize.generate_tokens(io.StringIO(text).readline):
        if token.type == tokenize.COMMENT:
            yield "comments", token.start[0], token.string.lstrip("# ")


def hashes(text):
    """(kind, line, text) of scripts and build files: comments, and the texts of here-documents."""
    message = False
    for number, line in enumerate(text.splitlines(), 1):
        if line == "TEXT":
            message = False
        elif message:
            yield "messages", number, line
        elif "<<'TEXT'" in line:
            message = True
        elif found := re.search(r"(?:^|\s)#\s(.*)", line):
            yield "comments", number, found[1]
