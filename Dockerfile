# The server of regard, for a machine without a GPU:
#     docker build --tag regard .
#     docker run --init --stop-timeout 40 -p 127.0.0.1:5000:5000 -v ./models:/models:ro regard en-de=en-de
FROM python:3.11-slim AS build
WORKDIR /source
ENV PIP_NO_CACHE_DIR=1 PIP_DISABLE_PIP_VERSION_CHECK=1 PIP_CONSTRAINT=/source/constraints.txt
RUN python -m venv /opt/regard
COPY constraints.txt ./
# By itself, so that a change of the code does not download it again.
RUN /opt/regard/bin/pip install --extra-index-url https://download.pytorch.org/whl/cpu torch
COPY . ./
RUN /opt/regard/bin/pip install '.[serve,exchange]'

FROM python:3.11-slim
RUN useradd --system --uid 10001 --no-create-home --home-dir /nonexistent regard \
    && install --directory --owner regard /var/cache/regard /models
COPY --from=build /opt/regard /opt/regard
# Loops that are compiled at the first start are kept in /var/cache/regard.
ENV PATH=/opt/regard/bin:$PATH XDG_CACHE_HOME=/var/cache
USER 10001
WORKDIR /models
VOLUME ["/var/cache/regard"]
EXPOSE 5000
HEALTHCHECK --interval=10s --timeout=3s --start-period=120s --retries=3 \
    CMD ["python", "-c", "from urllib.request import urlopen; urlopen('http://127.0.0.1:5000/health', timeout=2)"]
ENTRYPOINT ["regard", "serve", "--host", "0.0.0.0"]
CMD ["--help"]
