from cli.conftest import made  # noqa: F401
from serve.conftest import translator  # noqa: F401
