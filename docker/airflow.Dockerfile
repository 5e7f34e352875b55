# Airflow with the release pipeline: api-server, scheduler, dag-processor and triggerer run from this one image.
ARG PYTHON=3.11.13-slim-bookworm

FROM python:${PYTHON} AS build
ENV PIP_NO_CACHE_DIR=1 PIP_DISABLE_PIP_VERSION_CHECK=1 UV_LINK_MODE=copy NUMBA_CACHE_DIR=/opt/kernels
WORKDIR /build
COPY docker/uv.lock docker/airflow.lock ./
RUN python -m pip install --require-hashes --target uv -r uv.lock
RUN python -m venv --without-pip /opt/synth \
    && uv/bin/uv pip install --quiet --python /opt/synth/bin/python --compile-bytecode --require-hashes -r airflow.lock \
    && cp airflow.lock /opt/synth/requirements.lock
COPY pyproject.toml README.md LICENSE ./
COPY synth_core synth_core
COPY plugins plugins
RUN uv/bin/uv pip install --quiet --python /opt/synth/bin/python --compile-bytecode --no-deps . \
    && /opt/synth/bin/python -m synth_core.warm

FROM python:${PYTHON}
RUN groupadd --gid 50000 synth && useradd --uid 50000 --gid synth --create-home synth \
    && install -d -o synth -g synth -m 0755 /opt/airflow /workspace /workspace/public \
    && install -d -o synth -g synth -m 0700 /workspace/confidential
COPY --from=build /opt/synth /opt/synth
# Compiled kernels are only used from a folder that can be written to.
COPY --from=build --chown=50000:50000 /opt/kernels /opt/kernels
COPY dags /opt/airflow/dags
COPY --chmod=0755 docker/entrypoint.sh /usr/local/bin/entrypoint
ENV PATH=/opt/synth/bin:$PATH \
    NUMBA_CACHE_DIR=/opt/kernels \
    AIRFLOW_HOME=/opt/airflow \
    AIRFLOW__CORE__AUTH_MANAGER=airflow.providers.fab.auth_manager.fab_auth_manager.FabAuthManager \
    AIRFLOW__CORE__DAGS_ARE_PAUSED_AT_CREATION=True \
    AIRFLOW__CORE__DAGS_FOLDER=/opt/airflow/dags \
    AIRFLOW__CORE__LOAD_EXAMPLES=False \
    AIRFLOW__USAGE_DATA_COLLECTION__ENABLED=False \
    SYNTH_WORKSPACE=/workspace
USER 50000
WORKDIR /opt/airflow
ENTRYPOINT ["entrypoint"]
CMD ["airflow", "api-server"]
EXPOSE 8080
HEALTHCHECK --interval=30s --timeout=10s --start-period=90s --retries=5 \
    CMD ["python", "-c", "import urllib.request as r; r.urlopen('http://127.0.0.1:8080/api/v2/version', timeout=5)"]
