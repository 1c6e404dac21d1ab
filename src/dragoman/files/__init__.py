"""Files by reference: files on disk that others can download, at signed addresses that expire.

`FileDoor` is the only place where a file of ours can be downloaded, whichever dialect names it. The
gateway uses it if an agent or a caller accepts files in one form only (ADR 0021).
"""

from typing import TYPE_CHECKING

from dragoman.lazy_names import lazy_names

if TYPE_CHECKING:
    from .file_door import FileDoor, delete_files, files_folder
    from .names import safe_name

__all__ = ["FileDoor", "delete_files", "files_folder", "safe_name"]
__getattr__ = lazy_names(
    __name__, {"file_door": "FileDoor delete_files files_folder", "names": "safe_name"}
)
