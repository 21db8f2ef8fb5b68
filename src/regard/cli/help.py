"""`regard help`: the pages of docs/, in the terminal."""

import json
import os
import sys
from pathlib import Path
from typing import Annotated, Any

import typer

from regard.errors import unknown

_PACKAGE = Path(__file__).parents[1]
_PAGES = next(
    (docs for docs in (_PACKAGE / "docs", _PACKAGE.parents[1] / "docs") if docs.is_dir()), _PACKAGE
)
"""The folder of the pages: `docs` inside the package, as in a wheel, or else `docs` beside `src`,
as in a clone. If neither exists, the package's folder is taken, which has no pages."""
ALIASES = {
    "attention": "figures",
    "bleu": "scores",
    "budget": "time",
    "completion": "install",
    "docker": "serving",
    "errors": "exit-status",
    "evalb": "parsing",
    "gpu": "scaling",
    "import": "exchange",
    "info": "exchange",
    "memory": "scaling",
    "models": "files",
    "paper": "deviations",
    "python": "translating",
    "recipe": "recipes",
    "resume": "scaling",
    "runs": "files",
    "search": "translating",
    "set": "recipes",
    "speed": "performance",
    "status": "exit-status",
    "systemd": "serving",
    "torchrun": "scaling",
    "words": "glossary",
}
"""Other names of topics; each value is the name of the topic's page."""


def _topics() -> dict[str, Path]:
    """The English pages by name, without pages in other languages, such as claims.ko.md."""
    pages = sorted(_PAGES.glob("*.md"), key=lambda page: page.stem)
    return {page.stem: page for page in pages if "." not in page.stem}


def _completed(incomplete: str) -> list[str]:
    """The names of topics, ALIASES included, that begin with `incomplete`; a shell offers them."""
    return [name for name in (*_topics(), *ALIASES) if name.startswith(incomplete)]


_TopicArgument = Annotated[
    str | None,
    typer.Argument(metavar="[TOPIC]", help="A topic or a command.", autocompletion=_completed),
]


def help_(context: typer.Context, topic: _TopicArgument = None) -> None:
    """Explain a topic, such as recipes, time, search, scores or serving; without one, list them.

    On a terminal, the text is formatted and shown by a pager: the command in MANPAGER or
    PAGER, or less. Elsewhere, the page is printed as it was written, in Markdown.

    Examples:

    - `regard help`   (all topics)
    - `regard help recipes`   (every field of a recipe, its default and its meaning)
    - `regard help translate`   (what regard translate --help shows)
    """
    topics = _topics()
    if topic is None:
        typer.echo(_contents(topics))
        return
    name = topic.lower().removesuffix(".md")
    name = ALIASES.get(name, name)
    group: Any = context.parent and context.parent.command
    if name in topics:
        _show(topics[name].read_text(encoding="utf-8") + _added(name))
    elif name in group.commands:
        with group.commands[name].make_context(
            name, [], parent=context.parent, resilient_parsing=True
        ) as inner:
            typer.echo(inner.get_help())
    else:
        raise unknown("topic", topic, [*topics, *ALIASES, *group.commands], where="regard help")


def _contents(topics: dict[str, Path]) -> str:
    """The topics, each with the title of its page and its other names."""
    rows, width = [], max(map(len, topics), default=0)
    for name, page in topics.items():
        with page.open(encoding="utf-8") as lines:
            title = next(lines).lstrip("# ").strip()
        others = [alias for alias, meant in ALIASES.items() if meant == name]
        also = f" (also: {', '.join(others)})" if others else ""
        rows.append(f"  {name:<{width}}  {title}{also}")
    first = "regard help TOPIC explains a topic, and regard COMMAND --help a command. Topics:"
    return "\n".join([first, "", *rows])


def _added(name: str) -> str:
    """Text to add to a page: for "recipes", all fields of a recipe; for other pages, nothing."""
    if name != "recipes":
        return ""
    from regard.recipe import Recipe

    text = ""
    for section, its in Recipe.model_fields.items():
        kind: Any = its.annotation
        text += f"\n## [{section}]\n\n"
        for key, field in kind.model_fields.items():
            said = " ".join((field.description or "").split())
            text += f"- `{key} = {json.dumps(field.default)}`: {said}\n"
    return text


def _show(markdown: str) -> None:
    """Print a page: on a terminal, formatted and shown by a pager; elsewhere, as Markdown."""
    if not sys.stdout.isatty():
        typer.echo(markdown, nl=False)
        return
    from rich.console import Console
    from rich.markdown import Markdown

    # Options of less: R shows colours; with F and X, a page that fits the screen is only printed.
    os.environ.setdefault("LESS", "FRX")
    screen = Console()
    screen.width = min(screen.width, 100)
    with screen.pager(styles=True):
        screen.print(Markdown(markdown))
