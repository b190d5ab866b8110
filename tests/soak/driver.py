"""Work that is stopped: interrupted in this process, or killed in a fork of it."""

import os
import pickle
import signal
import time
import traceback
import warnings

from threadpoolctl import threadpool_info


def blas_threads():
    return [each["num_threads"] for each in threadpool_info() if each["user_api"] == "blas"]


def interrupted(function, seconds):
    """Call a function, with Ctrl-C after so many seconds; return whether it was interrupted."""
    before = signal.signal(signal.SIGALRM, lambda *_: signal.raise_signal(signal.SIGINT))
    try:
        try:
            signal.setitimer(signal.ITIMER_REAL, seconds)
            function()
        finally:
            signal.setitimer(signal.ITIMER_REAL, 0)
    except KeyboardInterrupt:
        return True
    finally:
        signal.signal(signal.SIGALRM, before)
    return False


def in_a_fork(function, kill_after=None):
    """Return what a function returns in a fork of this process; None if it was killed."""
    reader, writer = os.pipe()
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # Python 3.12 warns of every fork beside threads
        child = os.fork()
    if child == 0:
        code = 1
        try:
            with os.fdopen(writer, "wb") as answer:
                pickle.dump(function(), answer)
            code = 0
        except BaseException:
            traceback.print_exc()
        finally:
            os._exit(code)
    os.close(writer)
    if kill_after is not None:
        time.sleep(kill_after)
        os.kill(child, signal.SIGKILL)
    with os.fdopen(reader, "rb") as answer:
        pickled = answer.read()
    code = os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])
    assert code in (0, -signal.SIGKILL), f"the work ended with {code}"
    return None if code else pickle.loads(pickled)
