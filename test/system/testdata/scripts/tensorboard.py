"""Writes losses as TensorBoard's SummaryWriter does, without its package."""

import pathlib
import struct


def crc32c(data):
    crc = 0xFFFFFFFF
    for byte in data:
        crc ^= byte
        for _ in range(8):
            crc = crc >> 1 ^ 0x82F63B78 * (crc & 1)
    crc ^= 0xFFFFFFFF
    return struct.pack("<I", ((crc >> 15 | crc << 17) + 0xA282EAD8) & 0xFFFFFFFF)


def record(data):
    length = struct.pack("<Q", len(data))
    return length + crc32c(length) + data + crc32c(data)


def field(number, data):
    return bytes([number << 3 | 2, len(data)]) + data


def scalar(step, tag, value):
    summary = field(1, field(1, tag.encode()) + b"\x15" + struct.pack("<f", value))
    return record(b"\x10" + bytes([step]) + field(5, summary))


pathlib.Path("runs").mkdir()
with open("runs/events.out.tfevents.1.host", "wb", buffering=0) as out:
    for step in range(1, 31):
        out.write(scalar(step, "Loss/train", 1 / step))
