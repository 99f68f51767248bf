"""SHA-256 of the C library, by instructions of the processor and without."""

import hashlib
import random
import shutil
import subprocess

import pytest

from autopipe.export.compile_native import SOURCES

PROGRAM = """
#include "sha256.c"
int main(void) {
  static char data[1 << 20];
  static const char *const NAMES[] = {"plain", "fast"};
  size_t size = fread(data, 1, sizeof data, stdin);
  char found[65];
  for (int i = 0; i < 1 + has_instructions(); i++) {
    sha256_with(i ? add_blocks_fast : add_blocks, data, size, found);
    printf("%s %s\\n", NAMES[i], found);
  }
}
"""


@pytest.mark.skipif(shutil.which("cc") is None, reason="no C compiler")
def test_both_ways_are_those_of_hashlib(tmp_path):
    source, program = tmp_path / "digest.c", tmp_path / "digest"
    source.write_text(PROGRAM)
    subprocess.run(["cc", "-std=c11", "-O2", f"-I{SOURCES}", source, "-o", program], check=True)
    generator = random.Random(0)
    for size in (0, 1, 55, 56, 63, 64, 65, 119, 120, 128, 4096, 99_999):
        data = generator.randbytes(size)
        done = subprocess.run([program], input=data, capture_output=True, check=True)
        ways = [line.split() for line in done.stdout.decode().splitlines()]
        expected = hashlib.sha256(data).hexdigest()
        assert [digest for _, digest in ways] == [expected] * len(ways), (size, ways)
        assert ways[0][0] == "plain"
