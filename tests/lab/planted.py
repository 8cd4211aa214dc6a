"""Wrong versions of a kernel, made from its own source by changing one expression."""

import inspect
import textwrap

from numba import cuda


def planted(kernel, old, new):
    """The kernel with `old` replaced by `new` wherever it stands in its source; it must stand there."""
    function = kernel.py_func
    source = textwrap.dedent(inspect.getsource(function))
    source = source[source.index("def "):]
    assert old in source, f"{old!r} is not in {function.__name__}"
    names = function.__code__.co_freevars
    body = textwrap.indent(source.replace(old, new), "    ")
    scope = dict(function.__globals__)
    exec(f"def make({', '.join(names)}):\n{body}    return {function.__name__}", scope)
    return cuda.jit(scope["make"](*(cell.cell_contents for cell in function.__closure__ or ())))
