"""Functions of loops over numbers, written as LLVM where a kernel calls them.

For Numba to copy such a function into a kernel, and to infer its types, takes several times as long
as LLVM then needs for it. They consist of assignments, conditions and loops over ranges; values are
whole numbers of 64 bits, float64, truth values, and C-contiguous arrays and their parts by leading
indices. Divisors of whole numbers and indices are not negative. With ``NUMBA_BOUNDSCHECK=1``, an
index beyond its array ends the process.
"""

import ast
import ctypes
import inspect
import textwrap
from collections.abc import Callable
from functools import cache, reduce
from typing import Any

import numpy as np
from llvmlite import ir
from numba import config, types
from numba.core import cgutils
from numba.extending import intrinsic

_BIT, _WHOLE, _FLOAT = ir.IntType(1), ir.IntType(64), ir.DoubleType()
_KINDS = [_BIT, _WHOLE, _FLOAT]  # each is converted to those after it
_SYMBOLS = {
    ast.Lt: "<", ast.LtE: "<=", ast.Gt: ">", ast.GtE: ">=", ast.Eq: "==", ast.NotEq: "!=",
}  # fmt: skip
_ARITHMETIC: dict[type, tuple[Any, Any]] = {
    ast.Add: ("add", "fadd"), ast.Sub: ("sub", "fsub"), ast.Mult: ("mul", "fmul"),
    ast.Div: (None, "fdiv"), ast.FloorDiv: ("sdiv", None), ast.BitAnd: ("and_", None),
    ast.BitOr: ("or_", None), ast.RShift: ("ashr", None), ast.Mod: ("srem", None),
}  # fmt: skip
_OF_BITS = "and_", "or_"


def loops(result: types.Type = types.none) -> Callable[[Callable[..., Any]], Any]:
    """Decorate a function that kernels call, and that returns a value of a type."""

    def decorate(function: Callable[..., Any]) -> Any:
        if config.DISABLE_JIT:
            return function

        def typed(typing, *arguments):
            def generate(context, builder, signature, values):
                given = [
                    _argument(context, builder, kind, value)
                    for kind, value in zip(signature.args, values, strict=True)
                ]
                returned = _Function(builder, function, given).returned
                return context.get_dummy_value() if returned is None else returned

            return result(*map(types.unliteral, arguments)), generate

        own = inspect.Parameter("typing", inspect.Parameter.POSITIONAL_OR_KEYWORD)
        given = inspect.signature(function).parameters.values()
        vars(typed)["__signature__"] = inspect.Signature([own, *given])
        made = intrinsic(typed)
        made.py_func = function
        return made

    return decorate


def numbers_at(address: Any, like: np.ndarray) -> Any:
    """Return the numbers at an address, of the type of an array."""
    return ctypes.cast(int(address), ctypes.POINTER(np.ctypeslib.as_ctypes_type(like.dtype)))


class _Array:
    """Part of an array: where it starts, its shape, and how its numbers are converted."""

    def __init__(self, data: Any, shape: tuple[Any, ...], signed: bool) -> None:
        self.data, self.shape, self.signed = data, shape, signed


def _argument(context: Any, builder: Any, kind: types.Type, value: Any) -> Any:
    if not isinstance(kind, types.Array):
        return value
    if kind.layout != "C":
        raise TypeError(f"{kind} has strides")
    held = context.make_array(kind)(context, builder, value)
    shape = tuple(cgutils.unpack_tuple(builder, held.shape))
    return _Array(held.data, shape, getattr(kind.dtype, "signed", True))


@cache
def _parsed(function: Callable[..., Any]) -> Any:
    tree = ast.parse(textwrap.dedent(inspect.getsource(function)))
    return tree.body[0]


class _Function:
    """A call of a function, which becomes part of what a builder writes."""

    def __init__(self, builder: Any, function: Callable[..., Any], arguments: list[Any]) -> None:
        tree = _parsed(function)
        names = [each.arg for each in tree.args.args]
        self._builder, self._globals = builder, function.__globals__
        self._held: dict[str, Any] = {}  # arrays and tuples, from where they are assigned on
        self._places: dict[str, Any] = {}  # of numbers
        self._results: list[Any] = []
        for name, value in zip(names, arguments, strict=True):
            self._put(ast.Name(name), value)
        self._end = builder.append_basic_block()
        self._run(tree.body)
        if not builder.block.is_terminated:
            builder.branch(self._end)
        builder.position_at_end(self._end)
        results = [builder.load(place) for place in self._results]
        self.returned = results[0] if len(results) == 1 else tuple(results) or None

    # --- statements ---------------------------------------------------------------------------

    def _run(self, statements: list[Any]) -> None:
        for statement in statements:
            if not self._builder.block.is_terminated:
                getattr(self, f"_{type(statement).__name__.lower()}")(statement)

    def _expr(self, node: Any) -> None:
        if not isinstance(node.value, ast.Constant):  # the docstring
            self._value(node.value)

    def _assign(self, node: Any) -> None:
        value = self._value(node.value)
        for target in node.targets:
            self._put(target, value)

    def _augassign(self, node: Any) -> None:
        self._put(node.target, self._value(ast.BinOp(node.target, node.op, node.value)))

    def _put(self, target: Any, value: Any) -> None:
        if isinstance(target, ast.Tuple):
            for each, part in zip(target.elts, value, strict=True):
                self._put(each, part)
        elif isinstance(target, ast.Subscript):
            place = self._part(target)
            self._builder.store(self._stored(value, place.data.type.pointee), place.data)
        elif isinstance(value, _Array | tuple):
            self._held[target.id] = value
        else:
            if target.id not in self._places:
                self._places[target.id] = cgutils.alloca_once(self._builder, value.type)
            place = self._places[target.id]
            self._builder.store(self._converted(value, place.type.pointee), place)

    def _if(self, node: Any) -> None:
        with self._builder.if_else(self._value(node.test)) as (yes, no):
            with yes:
                self._run(node.body)
            with no:
                self._run(node.orelse)

    def _while(self, node: Any) -> None:
        self._loop(lambda: self._value(node.test), lambda: self._run(node.body))

    def _for(self, node: Any) -> None:
        limits = [self._converted(self._value(each), _WHOLE) for each in node.iter.args]
        start, stop, step = [*[_WHOLE(0)][: len(limits) == 1], *limits, _WHOLE(1)][:3]
        at = cgutils.alloca_once(self._builder, _WHOLE)
        self._builder.store(start, at)

        def below() -> Any:
            return self._builder.icmp_signed("<", self._builder.load(at), stop)

        def once() -> None:
            number = self._builder.load(at)
            self._put(node.target, number)
            self._run(node.body)
            if not self._builder.block.is_terminated:
                self._builder.store(self._builder.add(number, step), at)

        self._loop(below, once)

    def _loop(self, condition: Callable[[], Any], once: Callable[[], None]) -> None:
        test, body, after = (self._builder.append_basic_block() for _ in range(3))
        self._builder.branch(test)
        self._builder.position_at_end(test)
        self._builder.cbranch(condition(), body, after)
        self._builder.position_at_end(body)
        once()
        if not self._builder.block.is_terminated:
            self._builder.branch(test)
        self._builder.position_at_end(after)

    def _return(self, node: Any) -> None:
        value = self._value(node.value)
        values = value if isinstance(value, tuple) else (value,)
        if not self._results:
            self._results = [cgutils.alloca_once(self._builder, each.type) for each in values]
        for each, place in zip(values, self._results, strict=True):
            self._builder.store(self._converted(each, place.type.pointee), place)
        self._builder.branch(self._end)

    # --- values -------------------------------------------------------------------------------

    def _value(self, node: Any) -> Any:
        return getattr(self, f"_{type(node).__name__.lower()}")(node)

    def _number(self, value: Any) -> Any:
        """Return a number of Python as a constant; anything else as it is."""
        for kind, number in ((_BIT, bool), (_WHOLE, int), (_FLOAT, float)):
            if isinstance(value, number):
                return kind(value)
        return value

    def _constant(self, node: Any) -> Any:
        return self._number(node.value)

    def _name(self, node: Any) -> Any:
        if node.id in self._places:
            return self._builder.load(self._places[node.id])
        if node.id in self._held:
            return self._held[node.id]
        builtins = self._globals["__builtins__"]
        return self._number(self._globals.get(node.id, builtins.get(node.id)))

    def _attribute(self, node: Any) -> Any:
        value = self._value(node.value)
        if isinstance(value, _Array) and node.attr == "size":
            return reduce(self._builder.mul, value.shape)
        return getattr(value, node.attr)

    def _tuple(self, node: Any) -> Any:
        return tuple(map(self._value, node.elts))

    def _subscript(self, node: Any) -> Any:
        part = self._part(node)
        if not isinstance(part, _Array) or part.shape:
            return part
        value = self._builder.load(part.data)
        if isinstance(value.type, ir.FloatType):
            return self._builder.fpext(value, _FLOAT)
        if isinstance(value.type, ir.IntType) and value.type.width < _WHOLE.width:
            return (self._builder.sext if part.signed else self._builder.zext)(value, _WHOLE)
        return value

    def _part(self, node: Any) -> Any:
        whole = self._value(node.value)
        if isinstance(whole, tuple):
            return whole[node.slice.value]
        at, builder = self._value(node.slice), self._builder
        at = [self._converted(each, _WHOLE) for each in (at if isinstance(at, tuple) else (at,))]
        for index, size in zip(at if config.BOUNDSCHECK else (), whole.shape, strict=False):
            with builder.if_then(builder.icmp_unsigned(">=", index, size), likely=False):
                trap = ir.FunctionType(ir.VoidType(), [])
                builder.call(cgutils.get_or_insert_function(builder.module, trap, "llvm.trap"), [])
        place = at[0]
        for index, size in zip(at[1:], whole.shape[1:], strict=False):
            place = builder.add(builder.mul(place, size), index)
        rest = whole.shape[len(at) :]
        place = reduce(builder.mul, rest, place)
        return _Array(builder.gep(whole.data, [place]), rest, whole.signed)

    def _unaryop(self, node: Any) -> Any:
        value = self._value(node.operand)
        if isinstance(node.op, ast.Not):
            return self._builder.not_(value)
        return self._builder.fneg(value) if value.type == _FLOAT else self._builder.neg(value)

    def _binop(self, node: Any) -> Any:
        of_whole, of_floats = _ARITHMETIC[type(node.op)]
        least = _FLOAT if of_whole is None else _BIT if of_whole in _OF_BITS else _WHOLE
        a, b = self._alike(self._value(node.left), self._value(node.right), least)
        return getattr(self._builder, of_floats if a.type == _FLOAT else of_whole)(a, b)

    def _compare(self, node: Any) -> Any:
        [op], [right] = node.ops, node.comparators
        return self._compared(_SYMBOLS[type(op)], self._value(node.left), self._value(right))

    def _compared(self, symbol: str, a: Any, b: Any) -> Any:
        a, b = self._alike(a, b, _WHOLE)
        if a.type == _WHOLE:
            return self._builder.icmp_signed(symbol, a, b)
        if symbol == "!=":
            return self._builder.fcmp_unordered(symbol, a, b)
        return self._builder.fcmp_ordered(symbol, a, b)

    def _boolop(self, node: Any) -> Any:
        first, *others = node.values
        if not others:
            return self._value(first)
        rest, both = ast.BoolOp(node.op, others), isinstance(node.op, ast.And)
        cases = (rest, ast.Constant(False)) if both else (ast.Constant(True), rest)
        return self._ifexp(ast.IfExp(first, *cases))

    def _ifexp(self, node: Any) -> Any:
        builder, condition = self._builder, self._value(node.test)
        yes, no, after = (builder.append_basic_block() for _ in range(3))
        builder.cbranch(condition, yes, no)
        found = []
        for block, case in ((yes, node.body), (no, node.orelse)):
            builder.position_at_end(block)
            value = self._value(case)
            found.append((value, builder.block))
        kind = max((value.type for value, _ in found), key=_KINDS.index)
        incoming = []
        for value, block in found:
            builder.position_at_end(block)
            incoming.append((self._converted(value, kind), block))
            builder.branch(after)
        builder.position_at_end(after)
        result = builder.phi(kind)
        for value, block in incoming:
            result.add_incoming(value, block)
        return result

    def _call(self, node: Any) -> Any:
        builder, function = self._builder, self._value(node.func)
        values = [self._value(each) for each in node.args]
        if function in (min, max):
            symbol = "<" if function is min else ">"
            return reduce(lambda a, b: self._chosen(symbol, *self._alike(b, a, _WHOLE)), values)
        if function in (abs, np.sqrt):
            name = "llvm.fabs" if function is abs else "llvm.sqrt"
            intrinsic_ = builder.module.declare_intrinsic(name, [_FLOAT])
            return builder.call(intrinsic_, [self._converted(values[0], _FLOAT)])
        if function in (np.int64, np.uint64):
            return self._stored(values[0], _WHOLE)
        if function is numbers_at:
            start = builder.inttoptr(values[0], values[1].data.type)
            return _Array(start, (_WHOLE(2**63 - 1),), values[1].signed)
        return _Function(builder, getattr(function, "py_func", function), values).returned

    def _chosen(self, symbol: str, a: Any, b: Any) -> Any:
        return self._builder.select(self._compared(symbol, a, b), a, b)

    def _alike(self, a: Any, b: Any, least: ir.Type) -> tuple[Any, Any]:
        """Return two values as the same kind, at least the given one."""
        kind = max((a.type, b.type, least), key=_KINDS.index)
        return self._converted(a, kind), self._converted(b, kind)

    def _converted(self, value: Any, kind: ir.Type) -> Any:
        if value.type == kind:
            return value
        if _KINDS.index(value.type) > _KINDS.index(kind):
            raise TypeError(f"{value.type} would become {kind}")
        if kind == _WHOLE:
            return self._builder.zext(value, kind)
        convert = self._builder.uitofp if value.type == _BIT else self._builder.sitofp
        return convert(value, kind)

    def _stored(self, value: Any, kind: ir.Type) -> Any:
        """Return a value as an array holds it."""
        if isinstance(kind, ir.FloatType):
            return self._builder.fptrunc(self._converted(value, _FLOAT), kind)
        if kind == _FLOAT or (kind == _WHOLE and value.type != _FLOAT):
            return self._converted(value, kind)
        if value.type == _FLOAT:
            return self._builder.fptosi(value, kind)
        return self._builder.trunc(value, kind)
