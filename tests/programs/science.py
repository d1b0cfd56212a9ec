"""Science: packages of PyPI in the versions of requirements-all.txt, in their own Python."""
from program import Program, packages, python_job

PROGRAMS = [
    Program("duckdb", "DuckDB: a table grouped, joined, sorted", packages("duckdb"),
            python_job("query_duckdb.py")),
    Program("polars", "Polars: frames grouped, joined, sorted", packages("polars"),
            python_job("frame_polars.py")),
    Program("pandas", "pandas: frames grouped, joined, sorted", packages("pandas"),
            python_job("frame_pandas.py")),
    Program("scipy", "SciPy: a sparse system, nearest neighbours", packages("scipy"),
            python_job("solve_scipy.py")),
    Program("faiss", "Faiss: an inverted file and a graph", packages("faiss-cpu"),
            python_job("search_faiss.py")),
    Program("jax", "JAX: compiled steps on large arrays", packages("jax"),
            python_job("steps_jax.py")),
    Program("networkx", "NetworkX: a graph of dictionaries", packages("networkx", "scipy"),
            python_job("graph_networkx.py")),
    Program("pyarrow", "PyArrow: tables sorted, grouped, written and read", packages("pyarrow"),
            python_job("tables_pyarrow.py")),
    Program("numba", "Numba: compiled loops over arrays", packages("numba"),
            python_job("loops_numba.py")),
]
