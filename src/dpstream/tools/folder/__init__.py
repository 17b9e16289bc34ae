"""What explains a folder of releases to a reader who has nothing else: made of published files and ``[statement]``."""

from dpstream.tools.folder.explaining import explain
