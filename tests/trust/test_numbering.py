"""Paths of names are numbered by the nodes of a tree, and what it lacks is noted once a branch."""

from hbench.tree import LabelTree
from hbench.trust.numbering import Numbering

ROWS = [("Birds", "Owls", "Strix", "Tawny"), ("Birds", "Owls", "Tyto", "Barn")]


def numbering():
    levels = ("class", "order", "genus", "kind")
    return Numbering(LabelTree.from_names(ROWS, levels=levels)[0])


def test_a_branch_that_the_tree_lacks_is_noted_by_its_first_node_alone_however_deep_it_is():
    numbers = numbering()
    numbers.paths([("Fish", "Eels", "Conger", "Conger conger"), ("Fish", "Eels", "Moray")])
    numbers.paths([("Birds", "Owls", "Ninox", "Boobook")])
    assert numbers.unknown == ("Fish", "Birds > Owls > Ninox")


def test_nodes_beyond_the_tree_get_the_next_numbers_of_their_level_and_keep_them():
    numbers = numbering()
    first = numbers.paths([("Birds", "Owls", "Ninox"), ("Birds", "Owls", "Strix", "Ural")])
    assert first.tolist() == [[0, 0, 2, -1], [0, 0, 0, 2]]
    assert numbers.paths([("Birds", "Owls", "Ninox")]).tolist() == first[:1].tolist()
