"""Saved files that were changed by chance or by malice: an error of ours, or all as it was.

Each case changes a saved thing in one place or a few. Cases whose checksums were not made right
again must fail, or load to the bit what was saved; the others may load as something else, of which
nothing but that it is well-formed can be said.
"""

import copy
import io
import json
import os
import random
import subprocess
import sys
import zipfile
from functools import cache
from pathlib import Path

import numpy as np
import pytest
import zarr

import streamgda
from streamgda import ClassMoments, GaussianDiscriminantAnalysis, GaussianModel, GaussianNB, storage
from streamgda.errors import FormatError, SourceNotFoundError
from zarr.core.buffer import default_buffer_prototype
