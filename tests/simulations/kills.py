"""Programs that are killed in the middle of their work, however fast the machine is."""

from __future__ import annotations

import os
import random
import signal
import subprocess
import time
from collections.abc import Callable, Sequence


def killed_in_the_middle(command: Sequence[str], kills: int, progress: Callable[[], object], chance: random.Random
                         ) -> int:
    """Start a command again and again, and kill it and all that it started a random moment after its next `progress`.

    After the last of the kills it ends by itself. Returns how often it was killed: less if it ended before.
    """
    for done in range(kills):
        before = progress()
        with subprocess.Popen(command, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL, start_new_session=True
                              ) as process:
            while progress() == before and process.poll() is None:
                time.sleep(0.002)
            time.sleep(chance.uniform(0, 0.02))
            if process.poll() is not None:
                assert process.returncode == 0
                return done
            os.killpg(process.pid, signal.SIGKILL)
    subprocess.run(command, check=True, capture_output=True)
    return kills
