# SPDX-License-Identifier: Apache-2.0
"""What is in an image of GPU kernels: names, registers, shared memory, spills, occupancy."""
import dataclasses
import re
import struct

MACHINE_CUDA, MACHINE_AMDGPU = 190, 224


@dataclasses.dataclass
class Kernel:
    """What one kernel takes; None where the image does not say."""
    name: str
    registers: int | None = None
    shared: int = 0
    spill: int = 0


@dataclasses.dataclass
class Line:
    """What a .def file says of a kernel."""
    name: str
    threads: int
    shared: int


def read_def(path):
    """Lines of a .def file by name; of C only comments and the macro's commas are understood."""
    text = re.sub(r"/\*.*?\*/", "", path.read_text("utf-8"), flags=re.DOTALL)
    lines = {}
    for match in re.finditer(r"^TESS_GPU_KERNEL\((.*?)\)$", text, flags=re.MULTILINE | re.DOTALL):
        columns = [column.strip() for column in match[1].split(",")]
        lines[columns[0]] = Line(columns[0], int(columns[7]), int(columns[8]))
    return lines


# ---- ELF -----------------------------------------------------------------------------------------


def sections(data):
    """Name and bytes of every section."""
    offset, = struct.unpack_from("<Q", data, 40)
    size, count, names = struct.unpack_from("<HHH", data, 58)
    headers = [struct.unpack_from("<IIQQQQIIQQ", data, offset + i * size) for i in range(count)]
    start = headers[names][4]
    for header in headers:
        name = data[start + header[0]:data.index(b"\0", start + header[0])].decode()
        no_bits = header[1] == 8
        yield name, header[5], b"" if no_bits else data[header[4]:header[4] + header[5]]


def read_cubin(data, words):
    """Kernels of a cubin; registers and spills as ptxas -v has told them."""
    kernels = {name[6:]: Kernel(name[6:]) for name, _, _ in sections(data)
               if name.startswith(".text.")}
    for name, size, _ in sections(data):
        if name.startswith(".nv.shared.") and name[11:] in kernels:
            kernels[name[11:]].shared = size
    for part in re.split(r"Compiling entry function ", words)[1:]:
        kernel = kernels.get(part[1:part.index("'", 1)])
        spill = re.search(r"(\d+) bytes spill stores, (\d+) bytes spill loads", part)
        registers = re.search(r"Used (\d+) registers", part)
        if kernel and spill and registers:
            kernel.spill = max(int(spill[1]), int(spill[2]))
            kernel.registers = int(registers[1])
    return kernels


def unpack(data, at=0):
    """One MessagePack value and where the next one starts."""
    byte = data[at]
    at += 1
    if byte < 0x80:
        return byte, at
    if byte >= 0xe0:
        return byte - 256, at
    if byte in (0xc0, 0xc2, 0xc3):
        return {0xc0: None, 0xc2: False, 0xc3: True}[byte], at
    if 0xcc <= byte <= 0xcf or 0xd0 <= byte <= 0xd3:
        size = 1 << (byte & 3)
        return int.from_bytes(data[at:at + size], "big", signed=byte >= 0xd0), at + size
    if byte < 0x90:
        kind, count = "map", byte & 15
    elif byte < 0xa0:
        kind, count = "array", byte & 15
    elif byte < 0xc0:
        kind, count = "text", byte & 31
    else:
        kind, size = {0xd9: ("text", 1), 0xda: ("text", 2), 0xdb: ("text", 4), 0xdc: ("array", 2),
                      0xdd: ("array", 4), 0xde: ("map", 2), 0xdf: ("map", 4)}[byte]
        count = int.from_bytes(data[at:at + size], "big")
        at += size
    if kind == "text":
        return data[at:at + count].decode(), at + count
    values = []
    for _ in range(count * (2 if kind == "map" else 1)):
        value, at = unpack(data, at)
        values.append(value)
    return (dict(zip(values[::2], values[1::2])) if kind == "map" else values), at


def read_code_object(data):
    """Kernels of an AMD code object, from its metadata note."""
    for name, _, content in sections(data):
        if name != ".note":
            continue
        name_size, size, _ = struct.unpack_from("<III", content, 0)
        start = 12 + (name_size + 3) // 4 * 4
        metadata, _ = unpack(content[start:start + size])
        return {k[".name"]: Kernel(k[".name"], k[".vgpr_count"], k[".group_segment_fixed_size"],
                                   max(k[".private_segment_fixed_size"],
                                       4 * k[".vgpr_spill_count"]))
                for k in metadata["amdhsa.kernels"]}
    return {}


def read_image(data, words):
    """Kernels of an image by name."""
    if data[:4] != b"\x7fELF":
        names = re.findall(r"\.entry (\w+)", data.decode())
        return {name: Kernel(name) for name in names}
    machine, = struct.unpack_from("<H", data, 18)
    return read_cubin(data, words) if machine == MACHINE_CUDA else read_code_object(data)


# ---- Occupancy -----------------------------------------------------------------------------------


def nvidia_blocks(kernel, threads, shared, architecture):
    """Blocks that a multiprocessor holds: registers come by 8, a block costs a kilobyte more."""
    room = (227 if architecture.startswith("sm_9") else 163) * 1024 + 1024
    per_lane = (kernel.registers + 7) // 8 * 8
    return min(65536 // (per_lane * threads), room // (shared + 1024), 2048 // threads, 32)


def amd_waves(kernel, architecture):
    """Waves that a SIMD's registers hold."""
    is_cdna = architecture.startswith("gfx9")
    grain, room, most = (8, 512, 8) if is_cdna else (24, 1536, 16)
    return min(room // ((kernel.registers + grain - 1) // grain * grain), most)


def amd_waves_of_blocks(kernel, threads, shared, architecture):
    """The same with the shared memory of whole blocks: of four SIMDs, a unit or a pair of them."""
    is_cdna = architecture.startswith("gfx9")
    room = {"gfx950": 160}.get(architecture, 64 if is_cdna else 128) * 1024
    waves = threads // (64 if is_cdna else 32)
    blocks = room // shared if shared else 32
    return min(amd_waves(kernel, architecture), blocks * waves // 4)


def table(found, lines, architecture):
    """A line of text per kernel."""
    for name in sorted(found):
        kernel, line = found[name], lines.get(name)
        if kernel.registers is None or line is None:
            continue
        shared = kernel.shared + line.shared
        if architecture.startswith("gfx"):
            room = f"{amd_waves(kernel, architecture)} waves per SIMD"
        else:
            blocks = nvidia_blocks(kernel, line.threads, shared, architecture)
            room = f"{blocks} blocks, {blocks * line.threads * 100 // 2048} % of the lanes"
        yield (f"{name:32} {kernel.registers:3} registers, {shared:6} bytes shared, "
               f"{line.threads:3} threads, {room}"
               + (f", {kernel.spill} bytes spilled" if kernel.spill else ""))
