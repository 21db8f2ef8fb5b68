"""Random requests, generated from the OpenAPI description of the server."""

import json
from typing import Any

import pytest
import requests
import schemathesis
from hypothesis import HealthCheck, Phase, given, settings
from hypothesis import strategies as st
from schemathesis import GenerationMode

from serve.conftest import Serve

PATHS = ["/translate", "/detect", "/v1/translate", "/languages", "/health", "/frontend/settings"]
TAKEN = ("method", "url", "headers", "params", "json", "data", "files")
FUZZ = settings(
    max_examples=24,
    deadline=None,
    phases=[Phase.generate],
    suppress_health_check=list(HealthCheck),
    database=None,
)


EVERY = [(path, GenerationMode.POSITIVE) for path in PATHS]
EVERY += [
    (path, GenerationMode.NEGATIVE) for path in PATHS[:3]
]  # the other paths take no parameters


@pytest.mark.parametrize(("path", "mode"), EVERY)
def test_what_fits_the_description_and_what_does_not_is_answered_as_described(
    serve: Serve, path: str, mode: GenerationMode
) -> None:
    client = serve()
    description = client.get("/openapi.json").json()
    ((method, operation),) = description["paths"][path].items()
    schema = schemathesis.openapi.from_dict(description)
    statuses = set()

    @FUZZ
    @given(schema[path][method.upper()].as_strategy(generation_mode=mode))
    def ask(case: Any) -> None:
        sent = case.as_transport_kwargs(base_url="http://testserver")
        asked = requests.Request(**{k: v for k, v in sent.items() if k in TAKEN}).prepare()
        answer = client.request(
            method, asked.path_url, content=asked.body or b"", headers=dict(asked.headers)
        )
        statuses.add(answer.status_code)
        assert str(answer.status_code) in operation["responses"], (answer.status_code, answer.text)
        if answer.status_code >= 400:
            assert list(answer.json()) == ["error"]

    ask()
    assert max(statuses) < 500
    assert 200 in statuses or mode is GenerationMode.NEGATIVE or path in PATHS[:3]


anything = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(),
    lambda inside: st.lists(inside, max_size=4) | st.dictionaries(st.text(), inside, max_size=4),
    max_leaves=8,
)
KINDS = ["application/json", "application/x-www-form-urlencoded", "multipart/form-data; boundary=a"]
printable = st.text(st.characters(min_codepoint=32, max_codepoint=126))
fields = st.fixed_dictionaries(
    {},
    optional={
        **dict.fromkeys(("api_key", "stream", "alternatives", "n_best", "format"), anything),
        "q": anything | st.text(min_size=1),
        "text": anything | st.text(min_size=1),
        "source": st.sampled_from(["en", "auto", "de", "xx"]) | anything,
        "target": st.sampled_from(["en", "de"]) | anything,
    },
)


any_request = st.fixed_dictionaries(
    {
        "content": st.binary() | fields.map(lambda f: json.dumps(f).encode()),
        "headers": st.fixed_dictionaries({"content-type": st.sampled_from(KINDS) | printable}),
        "url": st.sampled_from(PATHS[:3]),
        "method": st.sampled_from(["POST", "POST", "GET", "PUT", "DELETE", "OPTIONS", "HEAD"]),
    }
)


def test_bytes_of_any_kind_are_answered_or_refused(serve: Serve) -> None:
    client = serve()

    @settings(FUZZ, max_examples=80)
    @given(any_request)
    def ask(request: dict[str, Any]) -> None:
        answer = client.request(**request)
        assert answer.status_code < 500, answer.text
        if answer.status_code >= 400 and request["method"] != "HEAD":
            assert list(answer.json()) == ["error"]

    ask()
