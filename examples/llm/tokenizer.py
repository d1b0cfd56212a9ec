"""The tokenizer of a GGUF file of kind "llama" (SentencePiece): text to token ids.

Only prepare and encode use it; the C++ program gets ids. It merges neighbouring symbols, best score
first, until no pair is a piece, and falls back to bytes for text in no piece. Pieces of
kind USER_DEFINED ("\\n\\n", "<start_of_turn>", ...) are split off first, the longest first.
"""

import heapq
import re

NORMAL, UNKNOWN, CONTROL, USER_DEFINED, UNUSED, BYTE = 1, 2, 3, 4, 5, 6
SPACE = "\u2581"


class Tokenizer:
    def __init__(self, pieces, scores, kinds, bos, add_space_prefix):
        self.pieces, self.kinds, self.bos = pieces, kinds, bos
        self.add_space_prefix = add_space_prefix
        self.scores = scores
        self.ids = {p: i for i, p in enumerate(pieces) if kinds[i] in (NORMAL, USER_DEFINED)}
        self.byte_ids = {int(p[3:5], 16): i for i, p in enumerate(pieces) if kinds[i] == BYTE}
        whole = [p for p, k in zip(pieces, kinds) if k == USER_DEFINED]
        whole.sort(key=len, reverse=True)
        self.whole = re.compile("(" + "|".join(map(re.escape, whole)) + ")") if whole else None

    @classmethod
    def from_gguf(cls, reader):
        def field(name):
            return reader.get_field("tokenizer.ggml." + name).contents()

        if field("model") != "llama":
            raise SystemExit(f"tokenizer is of kind {field('model')!r}; accepted: 'llama'")
        return cls(field("tokens"), field("scores"), field("token_type"), field("bos_token_id"),
                   field("add_space_prefix"))

    def encode(self, text):
        """The ids of `text`, with the begin-of-text token in front."""
        if self.add_space_prefix:
            text = " " + text
        ids = [self.bos]
        for run in self.whole.split(text) if self.whole else [text]:
            whole = self._is_whole(run)  # These keep spaces; the others use a sign for it.
            ids += [self.ids[run]] if whole else self._merge(run.replace(" ", SPACE))
        return ids

    def _is_whole(self, run):
        return run in self.ids and self.kinds[self.ids[run]] == USER_DEFINED

    def _merge(self, run):
        symbols = list(run)
        after = list(range(1, len(run) + 1))  # Index of the next live symbol; len(run) is the end.
        before = list(range(-1, len(run) - 1))
        pairs = []

        def consider(left):
            if left >= 0 and after[left] < len(symbols):
                joined = symbols[left] + symbols[after[left]]
                if joined in self.ids:
                    heapq.heappush(pairs, (-self.scores[self.ids[joined]], left, joined))

        for left in range(len(symbols)):
            consider(left)
        while pairs:
            _, left, joined = heapq.heappop(pairs)
            right = after[left] if symbols[left] is not None else len(symbols)
            if right >= len(symbols) or symbols[left] + symbols[right] != joined:
                continue  # One of the two has been merged with another since.
            symbols[left], symbols[right] = joined, None
            after[left] = after[right]
            if after[left] < len(symbols):
                before[after[left]] = left
            consider(left)
            consider(before[left])

        ids = []
        for symbol in symbols:
            if symbol in self.ids:
                ids.append(self.ids[symbol])
            elif symbol is not None:
                ids += [self.byte_ids[b] for b in symbol.encode()]
        return ids

    def lines(self):
        """Every piece on a line of its own: its bytes, with \\\\ and \\xHH for bytes that are not text."""
        for piece, kind in zip(self.pieces, self.kinds):
            raw = bytes([int(piece[3:5], 16)]) if kind == BYTE else piece.encode()
            if kind == BYTE and raw[0] >= 0x80:
                yield f"\\x{raw[0]:02x}"
            else:
                yield "".join(f"\\x{ord(c):02x}" if ord(c) < 0x20 or ord(c) == 0x7F else
                              "\\\\" if c == "\\" else c for c in raw.decode())
