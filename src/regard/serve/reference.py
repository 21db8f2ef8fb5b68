"""The page at /docs, which describes every route that the OpenAPI description contains."""

import json
from html import escape
from typing import Any

_STYLE = """
body { font: 1rem/1.5 system-ui, sans-serif; max-width: 50rem; margin: 2rem auto; padding: 0 1rem }
code, pre { font: 0.9rem/1.4 ui-monospace, monospace } pre { overflow: auto; padding: 0.5rem }
table { border-collapse: collapse; width: 100% } td, th { text-align: left; padding: 0.2rem 0.5rem;
border-bottom: 1px solid #8888; vertical-align: top } :root { color-scheme: light dark }
"""


def reference_page(openapi: dict[str, Any]) -> str:
    """The HTML page of an OpenAPI description; the page has no script and loads no other files."""
    info = openapi["info"]
    title = escape(f"{info['title']} {info['version']}")
    parts = [
        f"<!doctype html><html lang=en><meta charset=utf-8><title>{title}</title>",
        "<meta name=viewport content='width=device-width'>",
        f"<style>{_STYLE}</style><main><h1>{title}</h1>",
        "<p>For programs: <a href=openapi.json>openapi.json</a></p>",
    ]
    for path, methods in openapi["paths"].items():
        for method, operation in methods.items():
            parts.append(f"<h2><code>{method.upper()} {escape(path)}</code></h2>")
            parts.append(f"<p>{escape(operation.get('description', ''))}</p>")
            parts += _body(operation, openapi)
            statuses = ", ".join(sorted(operation["responses"]))
            parts.append(f"<p>Statuses: {escape(statuses)}</p>")
    schemas = openapi.get("components", {}).get("schemas", {})
    parts.append("<h2>Schemas</h2>")
    for name, schema in schemas.items():
        content = escape(json.dumps(schema, indent=1, ensure_ascii=False))
        parts.append(f"<details><summary><code>{escape(name)}</code></summary><pre>{content}</pre>")
        parts.append("</details>")
    return "\n".join([*parts, "</main></html>"])


def _body(operation: dict[str, Any], openapi: dict[str, Any]) -> list[str]:
    """A list with the HTML table of a request's fields; an empty list if there is no body."""
    content = operation.get("requestBody", {}).get("content", {})
    if not content:
        return []
    schema = next(iter(content.values()))["schema"]
    if "$ref" in schema:
        schema = openapi["components"]["schemas"][schema["$ref"].rpartition("/")[2]]
    rows = [
        f"<tr><td><code>{escape(name)}</code><td>{_type(field)}"
        f"<td>{'required' if name in schema.get('required', ()) else 'optional'}"
        f"<td>{escape(field.get('description', ''))}"
        for name, field in schema["properties"].items()
    ]
    kinds = escape(", ".join(content))
    return [f"<p>Body: {kinds}</p><table><tr><th>field<th>type<th><th>{''.join(rows)}</table>"]


def _type(field: dict[str, Any]) -> str:
    if "anyOf" in field:
        return " or ".join(_type(one) for one in field["anyOf"])
    if "enum" in field:
        return escape(" or ".join(field["enum"]))
    if field.get("type") == "array":
        return f"list of {_type(field['items'])}"
    return escape(str(field.get("type", "")))
