"""The tree in which the states of a search's shards are merged: as soon as all children of a node exist, so that few do."""

from collections.abc import Iterable, Iterator
from typing import NamedTuple

FAN = 8
"""States that are merged into one."""


class Node(NamedTuple):
    """The state of FAN ** level consecutive shards."""

    level: int
    number: int

    @property
    def name(self) -> str:
        """Its file."""
        return f"{self.level}-{self.number:08}.safetensors"

    @property
    def parent(self) -> "Node":
        """The node that it is merged into."""
        return Node(self.level + 1, self.number // FAN)

    @property
    def children(self) -> list["Node"]:
        """The nodes that are merged into it."""
        return [Node(self.level - 1, self.number * FAN + place) for place in range(FAN)]

    @classmethod
    def parse(cls, name: str) -> "Node":
        level, _, number = name.removesuffix(".safetensors").partition("-")
        return cls(int(level), int(number))


class Tree:
    """The nodes whose state exists, without those that are part of another."""

    def __init__(self, nodes: Iterable[Node] = ()) -> None:
        self.superseded: list[Node] = []
        self.nodes: set[Node] = set(nodes)
        for node in sorted(self.nodes):
            if self._ancestor(node):
                self.superseded.append(node)
                self.nodes.discard(node)

    def has(self, shard: int) -> bool:
        """Whether a shard is finished."""
        leaf = Node(0, shard)
        return leaf in self.nodes or self._ancestor(leaf)

    def add(self, node: Node) -> Node | None:
        """Note a new state. Returns the node to merge next, if its children are now complete."""
        self.nodes.add(node)
        self.nodes -= set(node.children) if node.level else set()
        return node.parent if self._is_complete(node.parent) else None

    def complete(self) -> Iterator[Node]:
        """The nodes whose children all exist, after an interruption."""
        yield from (parent for parent in sorted({node.parent for node in self.nodes}) if self._is_complete(parent))

    def _is_complete(self, node: Node) -> bool:
        return self.nodes.issuperset(node.children)

    def _ancestor(self, node: Node) -> bool:
        highest = max((other.level for other in self.nodes), default=0)
        while node.level < highest:
            node = node.parent
            if node in self.nodes:
                return True
        return False
