"""Questions on the pages: their budget, their price, and what an answer says."""

from __future__ import annotations

import html
import re
from pathlib import Path

from offices import Office, work

from dpstream.service.desk import Desk

CONFIG = """\
format = 1
[stream]
name = "asked"
total = "public"
[source]
path = "data.csv"
time_column = "step"
end = 1
[schema]
confirmed = true
[schema.columns.zip]
type = "categorical"
values = ["a", "b", "c"]
[mechanism]
name = "pmwg"
alpha = "0.3"
start = 21
[budget]
epsilon = "1"
[state]
dir = "state"
"""


def test_a_question_tells_its_price_and_its_answer_in_words(tmp_path: Path) -> None:
    """What is left for questions; decimals; the same question again is free; and what an easy answer is."""
    (tmp_path / "data.csv").write_text("zip,step\n" + "a,1\nb,1\nc,1\n" * 10, encoding="utf-8")
    (tmp_path / "dpstream.toml").write_text(CONFIG, encoding="utf-8")
    (tmp_path / "service.toml").write_text(
        '[service]\nname = "office"\n[[stream]]\nconfig = "dpstream.toml"\n', encoding="utf-8"
    )
    desk = Desk.open(tmp_path)
    desk.add_person(desk.operator("root"), "Ada", ["analyst"])
    work(desk)
    office = Office.served(tmp_path)
    try:
        ada, question = office.client("Ada"), "zip = 'a'"
        for place in ("/", "/stream?stream=asked"):
            page = ada.get(place).text
            assert re.search(r"questions have spent 0 of 1; [0-9]+ hard questions? left", page)
            assert 'class="spent" width="0.0"' in page
        page = ada.get("/ask", stream="asked", question=question).text
        assert re.search(r"this question: at most [0-9.]+ more", page)
        assert re.search(r"[0-9]/[0-9]", html.unescape(re.sub("<[^>]*>", "", page))) is None
        assert ada.post("/ask", stream="asked", question=question).status_code == 303
        work(desk)
        page = ada.get("/ask", stream="asked", question=question).text
        assert "Asked already: free." in page
        assert re.search(r"[0-9.]+ % of the records", page)
        assert "Hard questions left: " in page
        assert "theory" not in page
    finally:
        office.close()
