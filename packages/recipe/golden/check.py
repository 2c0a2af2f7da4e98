#!/usr/bin/env python3
"""Recomputes the vectors in image-hash.json from docs/images.md alone, with nothing but the standard library.

    check.py           compares, and exits with 1 if something differs
    check.py --write   fills in what is computed, for new vectors
"""

import hashlib
import json
import pathlib
import sys
from decimal import Decimal

VECTORS = pathlib.Path(__file__).with_name("image-hash.json")


def number(value):
    """As ECMAScript writes it, which is what RFC 8785 asks for."""
    if isinstance(value, int):
        return str(value)
    if value == 0:
        return "0"
    sign, digits, exponent = Decimal(repr(value)).normalize().as_tuple()
    text = "".join(map(str, digits))
    point = len(text) + exponent
    if len(text) <= point <= 21:
        written = text + "0" * (point - len(text))
    elif 0 < point <= 21:
        written = text[:point] + "." + text[point:]
    elif -6 < point <= 0:
        written = "0." + "0" * -point + text
    else:
        fraction = "." + text[1:] if len(text) > 1 else ""
        written = f"{text[0]}{fraction}e{'+' if point > 0 else '-'}{abs(point - 1)}"
    return ("-" if sign else "") + written


def canonical(value):
    """RFC 8785: no spaces, members sorted by the UTF-16 code units of their names."""
    if value is None:
        return "null"
    if isinstance(value, bool):
        return "true" if value else "false"
    if isinstance(value, (int, float)):
        return number(value)
    if isinstance(value, str):
        value.encode("utf-8")
        return json.dumps(value, ensure_ascii=False)
    if isinstance(value, list):
        return "[" + ",".join(canonical(item) for item in value) + "]"
    names = sorted(value, key=lambda name: name.encode("utf-16-be"))
    return "{" + ",".join(canonical(name) + ":" + canonical(value[name]) for name in names) + "}"


def digest(text):
    return "sha256:" + hashlib.sha256(text.encode("utf-8")).hexdigest()


def base_key(base):
    return {"base": "base", "image": f"image:{base.get('name')}", "snapshot": f"snapshot:{base.get('id')}"}[base["kind"]]


def compute(vector):
    """The recipe has to be in its normal form."""
    recipe, bases = vector["recipe"], vector["bases"]
    ends = {}

    def digest_of(source):
        if source["kind"] != "stage":
            return bases[base_key(source)]
        index = source["index"]
        if index not in ends:
            stage = recipe["stages"][index]
            ends[index] = chain_of(stage)[2]
        return ends[index]

    def chain_of(stage):
        parent = digest_of(stage["base"])
        texts, chain = [], []
        for step in stage["steps"]:
            if step["kind"] == "copy-from":
                step = {**step, "source": digest_of(step["source"])}
            text = canonical({"parent": parent, "step": step, "version": 1})
            parent = digest(text)
            texts.append(text)
            chain.append(parent)
        return texts, chain, parent

    texts, chain, end = chain_of(recipe)
    whole = canonical({"chain": end, "start": recipe["start"], "version": 1})
    trees = [
        {"tree": tree["tree"], "canonical": canonical(tree["tree"]), "digest": digest(canonical(tree["tree"]))}
        for tree in vector.get("trees", [])
    ]
    return {"trees": trees, "texts": texts, "chain": chain, "canonical": whole, "hash": digest(whole)}


def main():
    vectors = json.loads(VECTORS.read_text(encoding="utf-8"))
    computed = [{**vector, **compute(vector)} for vector in vectors]
    if "--write" in sys.argv:
        VECTORS.write_text(json.dumps(computed, indent=2) + "\n", encoding="utf-8")
        return 0
    wrong = [new["name"] for old, new in zip(vectors, computed) if old != new]
    for name in wrong:
        print(f"differs: {name}", file=sys.stderr)
    print(f"{len(vectors) - len(wrong)} of {len(vectors)} vectors agree")
    return 1 if wrong or not vectors else 0


if __name__ == "__main__":
    sys.exit(main())
