"""Which area of programming a package belongs to: the labels of the demonstration's classification task.

A table, not a rule: a package that is not named here has no area; its text is in the corpus and in no task. An area
that is too thin on a machine is left out there (see `tasks.py`).
"""

_TABLE = {
    "network": """
        email http urllib smtplib imaplib poplib ftplib nntplib telnetlib socket socketserver ssl xmlrpc wsgiref cgi
        ipaddress mailbox mailcap netrc urllib3 requests httpx httpcore h11 aiohttp websockets asyncore asynchat smtpd
        certifi uvicorn starlette fastapi flask werkzeug django
    """,
    "files and system": """
        os pathlib shutil tempfile glob fnmatch zipfile tarfile gzip bz2 lzma posixpath ntpath genericpath subprocess
        platform filecmp fileinput mimetypes stat dbm shelve sqlite3 fsspec filelock psutil smart_open cloudpathlib
        io _pyio _compression pty sysconfig site venv zipapp zipimport curses getpass locale crypt plistlib pathspec
    """,
    "text": """
        re regex string textwrap difflib html xml json csv configparser tokenize codecs encodings unicodedata stringprep
        ftfy jinja2 markupsafe pygments pyparsing markdown_it yaml tomllib gettext argparse optparse getopt shlex rich
        wcwidth idna charset_normalizer tiktoken tokenizers click typer fontTools base64 quopri lxml bs4 docutils
    """,
    "language tools": """
        ast inspect typing types dataclasses enum abc functools importlib unittest doctest pdb bdb dis traceback
        warnings logging pickle copy contextlib pydoc trace timeit profile pstats codeop code runpy weakref mypy mypyc
        pytest _pytest hypothesis pluggy setuptools packaging wrapt typing_extensions pydantic pydantic_core
        typing_inspection annotated_types symtable pkgutil modulefinder torchgen
    """,
    "concurrency": """
        asyncio threading multiprocessing concurrent queue sched selectors anyio joblib trio sniffio _threading_local
        threadpoolctl contextvars signal
    """,
    "mathematics": "numpy scipy sympy mpmath decimal _pydecimal fractions statistics random numbers networkx",
    "machine learning": """
        sklearn torch functorch transformers thinc accelerate safetensors spacy xgboost tensorflow keras jax
    """,
    "graphics": "matplotlib mpl_toolkits PIL tkinter turtle contourpy kiwisolver cycler colorsys plotly seaborn bokeh",
    "tables": "polars narwhals pandas pyarrow duckdb dask",
}

AREAS: dict[str, str] = {package: area for area, packages in _TABLE.items() for package in packages.split()}


def area_of(package: str) -> str | None:
    """The package's area, or None where the table does not know it."""
    return AREAS.get(package)
