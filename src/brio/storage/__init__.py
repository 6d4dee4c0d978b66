"""Writing and removing files: the only room that changes a disk, and the hashes by which damage is noticed."""

from .locks import LOCK, lock_folder
from .partial import is_partial, open_scratch_folder, remove_leftovers, remove_old_scratch
from .sums import (
    SUMS,
    UnhashedFilesWarning,
    check_all,
    check_stored,
    hash_file,
    is_kept,
    read_sums,
    warn_unhashed,
    write_recorded,
    write_sums,
)
from .writing import (
    NewFile,
    create_whole_folder,
    make_folders,
    refuse_existing,
    remove_empty_folder,
    remove_file,
    require_creatable,
    write_atomically,
    write_new,
)

__all__ = [
    "LOCK",
    "SUMS",
    "NewFile",
    "UnhashedFilesWarning",
    "check_all",
    "check_stored",
    "create_whole_folder",
    "hash_file",
    "is_kept",
    "is_partial",
    "lock_folder",
    "make_folders",
    "open_scratch_folder",
    "read_sums",
    "refuse_existing",
    "remove_empty_folder",
    "remove_file",
    "remove_leftovers",
    "remove_old_scratch",
    "require_creatable",
    "warn_unhashed",
    "write_atomically",
    "write_new",
    "write_recorded",
    "write_sums",
]
