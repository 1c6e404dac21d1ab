"""Files by reference: what is kept on disk for others to download, at signed addresses that expire.

`FileDoor` is the one place at which a file of ours can be downloaded, whichever dialect names it.
The gateway uses it where an agent or a caller takes files in one form only (ADR 0021).
"""

from .file_door import FileDoor, delete_files, files_folder
from .names import safe_name

__all__ = ["FileDoor", "delete_files", "files_folder", "safe_name"]
