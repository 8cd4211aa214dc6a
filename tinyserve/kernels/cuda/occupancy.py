"""How many warps an SM can hold of a kernel: the least that registers, shared memory, threads and CTA slots allow.

Limits from the CUDA C++ programming guide, "Technical specifications per compute capability".
"""

from __future__ import annotations

from dataclasses import dataclass

from .header import ceil


@dataclass(frozen=True)
class Architecture:
    """What one SM has. Registers are handed out to a warp in units of 256, from four equal parts; shared memory in units of 128
    bytes, 1 KiB of each CTA's share being the system's."""

    compute_capability: tuple[int, int]
    warps: int
    ctas: int
    registers: int
    shared_bytes: int


ARCHITECTURES = {
    "sm_80": Architecture((8, 0), 64, 32, 65536, 164 * 1024),
    "sm_86": Architecture((8, 6), 48, 16, 65536, 100 * 1024),
    "sm_89": Architecture((8, 9), 48, 24, 65536, 100 * 1024),
    "sm_90": Architecture((9, 0), 64, 32, 65536, 228 * 1024),
}


def resident_ctas(arch: str, threads: int, registers: int, shared_bytes: int) -> int:
    """CTAs that one SM of `arch` ('sm_90') holds at the same time."""
    sm, warps = ARCHITECTURES[arch], ceil(threads, 32)
    per_warp = max(256, ceil(registers * 32, 256) * 256)
    warps_by_registers = 4 * (sm.registers // 4 // per_warp)
    by_shared = sm.shared_bytes // (ceil(shared_bytes, 128) * 128 + 1024)
    return min(sm.ctas, sm.warps // warps, warps_by_registers // warps, by_shared)


def occupancy(arch: str, threads: int, registers: int, shared_bytes: int) -> float:
    """Resident warps as a share of the most that the SM can hold, 0 to 1."""
    return resident_ctas(arch, threads, registers, shared_bytes) * ceil(threads, 32) / ARCHITECTURES[arch].warps
