"""Writes a sharded safetensors model of incompressible data: DIRECTORY FILES MEBIBYTES."""
import hashlib
import json
import os
import struct
import sys

directory, files, size = sys.argv[1], int(sys.argv[2]), int(sys.argv[3]) << 20
os.makedirs(directory, exist_ok=True)
where, sums = {}, []
tensor = 3 << 20
for number in range(1, files + 1):
    name = f"model-{number:05}-of-{files:05}.safetensors"
    header, at = {}, 0
    for index in range(size // files // tensor):
        key = f"layers.{number}.{index}.weight"
        header[key] = {"dtype": "BF16", "shape": [1536, 1024], "data_offsets": [at, at + tensor]}
        where[key] = name
        at += tensor
    raw = json.dumps(header).encode()
    raw += b" " * (-len(raw) % 8)
    digest = hashlib.sha256()
    with open(os.path.join(directory, name), "wb") as out:
        for piece in [struct.pack("<Q", len(raw)) + raw] + [None] * len(header):
            piece = piece or os.urandom(tensor)
            out.write(piece)
            digest.update(piece)
    sums.append(f"{digest.hexdigest()}  {name}\n")
with open(os.path.join(directory, "model.safetensors.index.json"), "w") as out:
    json.dump({"metadata": {}, "weight_map": where}, out)
with open(os.path.join(directory, "SHA256SUMS"), "w") as out:
    out.writelines(sums)
