"""The sentences of a study while they are being read: files of some thousand rows each, from which reading can resume."""

import json
from typing import Any

import pyarrow as pa

from ffscope.study.folder import Study
from ffscope.study.resumable import ResumableFolder
from ffscope.study.schemas import SCHEMAS

SCHEMA = SCHEMAS["sentences.parquet"]
_NOTE = b"note"


class Parts:
    """Numbered parts of sentences.parquet, each with a note on how far reading was. Those made with other settings are deleted."""

    def __init__(self, study: Study, settings: dict[str, Any]) -> None:
        self._folder = ResumableFolder(study, "sentences", settings)
        self.count = 0
        while self._folder.path(_file(self.count)).is_file():
            self.count += 1

    def write(self, table: pa.Table, note: dict[str, Any]) -> None:
        """Add a part."""
        schema = SCHEMA.with_metadata({_NOTE: json.dumps(note).encode("utf-8", "surrogatepass")})
        options = pa.ipc.IpcWriteOptions(compression="lz4")
        with (
            self._folder.writing(_file(self.count)) as path,
            pa.ipc.new_file(str(path), schema, options=options) as writer,
        ):
            writer.write_table(table)
        self.count += 1

    def read(self, number: int) -> pa.Table:
        """The rows of a part."""
        with pa.ipc.open_file(str(self._folder.path(_file(number)))) as reader:
            return reader.read_all().replace_schema_metadata()

    def note(self, number: int) -> dict[str, Any]:
        """The note of a part."""
        with pa.ipc.open_file(str(self._folder.path(_file(number)))) as reader:
            return json.loads(reader.schema.metadata[_NOTE])

    def drop(self) -> None:
        """Delete the parts, after the table is written."""
        self._folder.drop()


def _file(number: int) -> str:
    return f"{number:06}.arrow"
