"""The warp layer as PTX: each door is an intrinsic that becomes one instruction where it is called. See `warp/__init__.py`."""

from __future__ import annotations

from llvmlite import ir
from numba.cuda import cgutils, types
from numba.cuda.core.errors import RequireLiteralValue
from numba.cuda.extending import intrinsic
from numba.cuda.typing import signature

from .emit import (
    F32,
    I32,
    MEMORY,
    asm,
    check_index,
    element,
    integer,
    joined,
    pack,
    pieces,
    require,
    shared_address,
)

REGISTER = types.uint32


def _shuffle(mode: str, bound: int):
    @intrinsic
    def shuffle(typing, value, lane):
        require(isinstance(value, (types.Integer, types.Float)), "shuffles exchange numbers")

        def code(context, builder, sig, args):
            lane_number = integer(builder, args[1], sig.args[1])
            words = [asm(builder, I32, f"shfl.sync.{mode}.b32 $0, $1, $2, {bound}, -1;", "=r,r,r", (word, lane_number))
                     for word in pieces(builder, args[0])]
            return joined(builder, words, args[0].type)
        return signature(value, value, lane), code
    return shuffle


shfl = _shuffle("idx", 31)
shfl_xor = _shuffle("bfly", 31)
shfl_up = _shuffle("up", 0)
shfl_down = _shuffle("down", 31)


def _vote(template: str, result, constraint: str):
    @intrinsic
    def vote(typing, predicate):
        def code(context, builder, sig, args):
            flag = builder.zext(context.cast(builder, args[0], sig.args[0], types.boolean), I32)
            answer = asm(builder, I32, "{ .reg .pred p, q; setp.ne.u32 p, $1, 0; " + template + " }", "=r,r", (flag,))
            return answer if result is REGISTER else builder.icmp_unsigned("!=", answer, ir.Constant(I32, 0))
        return signature(result, predicate), code
    return vote


ballot = _vote("vote.sync.ballot.b32 $0, p, -1;", REGISTER, "=r")
any_lane = _vote("vote.sync.any.pred q, p, -1; selp.u32 $0, 1, 0, q;", types.boolean, "=r")
all_lanes = _vote("vote.sync.all.pred q, p, -1; selp.u32 $0, 1, 0, q;", types.boolean, "=r")


def _mma(shape: str, kinds: str, sum_type, sum_llvm, letter: str):
    template = f"mma.sync.aligned.{shape}.row.col.{kinds} {{$0,$1,$2,$3}}, {{$4,$5,$6,$7}}, {{$8,$9}}, {{$10,$11,$12,$13}};"
    constraints = ",".join([f"={letter}"] * 4 + ["r"] * 6 + [letter] * 4)

    @intrinsic
    def mma(typing, a, b, c):
        for part, count, name in ((a, 4, "a"), (b, 2, "b"), (c, 4, "c")):
            require(isinstance(part, types.BaseTuple) and len(part) == count, f"mma: {name} must be a tuple of {count} registers")

        def code(context, builder, sig, args):
            a, b = ([integer(builder, value, REGISTER) for value in cgutils.unpack_tuple(builder, part)] for part in args[:2])
            c = [context.cast(builder, value, kind, sum_type) for value, kind in zip(cgutils.unpack_tuple(builder, args[2]), sig.args[2])]
            sums = asm(builder, ir.LiteralStructType([sum_llvm] * 4), template, constraints, a + b + c, moves=False)
            return pack(builder, [builder.extract_value(sums, i) for i in range(4)])
        return signature(types.UniTuple(sum_type, 4), a, b, c), code
    return mma


mma_m16n8k16_f16 = _mma("m16n8k16", "f32.f16.f16.f32", types.float32, F32, "f")
mma_m16n8k16_bf16 = _mma("m16n8k16", "f32.bf16.bf16.f32", types.float32, F32, "f")
mma_m16n8k32_s8 = _mma("m16n8k32", "s32.s8.s8.s32", types.int32, I32, "r")


def _ldmatrix(count: int, transposed: bool):
    outs = ",".join(f"${i}" for i in range(count))
    template = f"ldmatrix.sync.aligned.m8n8.x{count}{'.trans' * transposed}.shared.b16 {{{outs}}}, [${count}];"
    constraints = ",".join(["=r"] * count + ["r"]) + MEMORY

    @intrinsic
    def ldmatrix(typing, array, index):
        check_index(array, index)

        def code(context, builder, sig, args):
            address = shared_address(builder, element(context, builder, sig.args[0], args[0], sig.args[1], args[1]))
            words = asm(builder, ir.LiteralStructType([I32] * count), template, constraints, (address,))
            return pack(builder, [builder.extract_value(words, i) for i in range(count)])
        return signature(types.UniTuple(REGISTER, count), array, index), code
    return ldmatrix


ldmatrix_x4, ldmatrix_x4_trans = _ldmatrix(4, False), _ldmatrix(4, True)
ldmatrix_x2, ldmatrix_x2_trans = _ldmatrix(2, False), _ldmatrix(2, True)


@intrinsic
def cp_async(typing, shared, shared_index, source, source_index, valid):
    check_index(shared, shared_index)
    check_index(source, source_index)

    def code(context, builder, sig, args):
        target = shared_address(builder, element(context, builder, sig.args[0], args[0], sig.args[1], args[1]))
        origin = element(context, builder, sig.args[2], args[2], sig.args[3], args[3])
        flag = context.cast(builder, args[4], sig.args[4], types.boolean)
        size = builder.select(flag, ir.Constant(I32, 16), ir.Constant(I32, 0))
        address = builder.ptrtoint(origin, ir.IntType(64))
        asm(builder, ir.VoidType(), "cp.async.cg.shared.global [$0], [$1], 16, $2;", "r,l,r" + MEMORY, (target, address, size))
        return context.get_dummy_value()
    return signature(types.none, shared, shared_index, source, source_index, valid), code


@intrinsic
def cp_async_commit(typing):
    def code(context, builder, sig, args):
        asm(builder, ir.VoidType(), "cp.async.commit_group;", "~{memory}", ())
        return context.get_dummy_value()
    return signature(types.none), code


@intrinsic
def cp_async_wait(typing, pending):
    if not isinstance(pending, types.IntegerLiteral):
        raise RequireLiteralValue("cp_async_wait: the number of groups left pending must be a literal")

    def code(context, builder, sig, args):
        asm(builder, ir.VoidType(), f"cp.async.wait_group {sig.args[0].literal_value};", "~{memory}", ())
        return context.get_dummy_value()
    return signature(types.none, pending), code


def _register_type(array):
    return types.float32 if array.dtype == types.float32 else REGISTER


def _load(count: int, once: bool):
    template = f"ld.global.nc.L1::no_allocate.v{count}.u32 {{{','.join(f'${i}' for i in range(count))}}}, [${count}];"

    @intrinsic
    def load(typing, array, index):
        check_index(array, index)
        kind = _register_type(array)

        def code(context, builder, sig, args):
            pointer = element(context, builder, sig.args[0], args[0], sig.args[1], args[1])
            if once:
                address = builder.ptrtoint(pointer, ir.IntType(64))
                constraints = ",".join(["=r"] * count + ["l"])
                words = asm(builder, ir.LiteralStructType([I32] * count), template, constraints, (address,))
                parts = [builder.extract_value(words, i) for i in range(count)]
            else:
                vector = ir.VectorType(I32, count)
                wide = builder.load(builder.bitcast(pointer, vector.as_pointer()), align=4 * count)
                parts = [builder.extract_element(wide, ir.Constant(I32, i)) for i in range(count)]
            parts = parts if kind is REGISTER else [builder.bitcast(part, F32) for part in parts]
            return pack(builder, parts)
        return signature(types.UniTuple(kind, count), array, index), code
    return load


load128, load128_once, load64 = _load(4, False), _load(4, True), _load(2, False)


@intrinsic
def load32(typing, array, index):
    check_index(array, index)

    def code(context, builder, sig, args):
        pointer = element(context, builder, sig.args[0], args[0], sig.args[1], args[1])
        return builder.load(builder.bitcast(pointer, I32.as_pointer()), align=4)
    return signature(REGISTER, array, index), code


def _store(count: int):
    @intrinsic
    def store(typing, array, index, words):
        check_index(array, index)
        if count > 1:
            require(isinstance(words, types.BaseTuple) and len(words) == count, f"store: give a tuple of {count} registers")

        def code(context, builder, sig, args):
            pointer = element(context, builder, sig.args[0], args[0], sig.args[1], args[1])
            vector = ir.Constant(ir.VectorType(I32, count), ir.Undefined)
            values = cgutils.unpack_tuple(builder, args[2]) if count > 1 else [args[2]]
            kinds = list(sig.args[2]) if count > 1 else [sig.args[2]]
            for i, (word, kind) in enumerate(zip(values, kinds)):
                bits = integer(builder, word, kind) if isinstance(kind, types.Integer) else builder.bitcast(word, I32)
                vector = builder.insert_element(vector, bits, ir.Constant(I32, i))
            builder.store(vector, builder.bitcast(pointer, vector.type.as_pointer()), align=4 * count)
            return context.get_dummy_value()
        return signature(types.none, array, index, words), code
    return store


store128, store64, store32 = _store(4), _store(2), _store(1)
